import { Schema, SchemaTransformation } from "effect"

const iso8601 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

/** A time as the wire has it: UTC in milliseconds with `Z` (D33). */
export const timestamp = (description: string) =>
  Schema.String.check(
    Schema.isPattern(iso8601, { description, toJsonSchema: () => ({ pattern: iso8601.source, format: "date-time" }) })
  ).pipe(Schema.decodeTo(Schema.DateTimeUtc, SchemaTransformation.dateTimeUtcFromString))
