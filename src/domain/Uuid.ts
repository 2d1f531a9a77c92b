import { Schema, SchemaTransformation } from "effect"

const lowerCase = /^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

/** A UUID in any case, decoded to the lower case in which it is stored, compared and bound to a sealed key. */
export const uuid = (description: string) =>
  Schema.String.annotate({ message: "must be a UUID" })
    .check(Schema.isUUID(undefined, { message: "must be a UUID", description }))
    .pipe(
      Schema.decodeTo(
        Schema.String.check(Schema.isPattern(lowerCase, { message: "must be a UUID" })),
        SchemaTransformation.transform({ decode: (text) => text.toLowerCase(), encode: (text) => text })
      )
    )
