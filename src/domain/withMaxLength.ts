import { Schema, SchemaTransformation } from "effect"

/**
 * Checks the length of a list before the schema sees it, so refusing a long list costs no more than reading it.
 * `Schema.Any` is the one schema that HttpApi does not replace by a walk over all of the value.
 */
export const withMaxLength =
  (max: number, message: string) =>
  <T, E>(schema: Schema.Codec<T, E>) => {
    const isShort = Schema.makeFilter((input: unknown) => !Array.isArray(input) || input.length <= max, {
      message,
      toJsonSchema: () => Schema.toJsonSchemaDocument(schema).schema
    })
    const given: Schema.Codec<E> = Schema.Any.check(isShort)
    return given.pipe(Schema.decodeTo(schema, SchemaTransformation.passthrough()))
  }
