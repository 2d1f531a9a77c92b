import { Schema, SchemaTransformation } from "effect"

/** Versions 1 to 8 of RFC 9562, and its nil and max UUIDs, which are UUIDs of nothing here. */
const lowerCase =
  /^(?:[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}|0{8}(?:-0{4}){3}-0{12}|f{8}(?:-f{4}){3}-f{12})$/
const anyCase =
  /^(?:[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|0{8}(?:-0{4}){3}-0{12}|[fF]{8}(?:-[fF]{4}){3}-[fF]{12})$/

const message = "must be a UUID"

/** A UUID in either case, decoded to the lowercase form that is stored, compared and bound to a sealed key. */
export const uuid = (description: string) =>
  Schema.String.annotate({ message })
    .check(
      Schema.isPattern(anyCase, {
        message,
        description,
        toJsonSchema: () => ({ pattern: anyCase.source, format: "uuid" })
      })
    )
    .pipe(
      Schema.decodeTo(
        Schema.String.check(Schema.isPattern(lowerCase, { message })),
        SchemaTransformation.transform({ decode: (text) => text.toLowerCase(), encode: (text) => text })
      )
    )
