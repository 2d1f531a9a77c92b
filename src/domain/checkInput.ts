import { Effect, Result, Schema, type SchemaAST, SchemaParser, SchemaTransformation, Struct } from "effect"
import { InvalidParams } from "./Errors.ts"
import { type Issue, issuesOf, missingMember } from "./Issue.ts"
import { nearestWord } from "./nearestWord.ts"

const isPreserved = (text: string): boolean => !text.includes("\0") && text.isWellFormed()

/** Text that UTF-8 and PostgreSQL preserve (D25). */
export const Text = Schema.String.annotate({ message: "must be a string" }).check(
  // Such text needs no further check.
  Schema.makeFilter(isPreserved, { message: "must not contain U+0000 or half of a surrogate pair" }, true)
)

const maxLength = Schema.isMaxCodePoints(255, { message: "must have at most 255 characters" })

/** Text of at most 255 code points, possibly empty. */
export const ShortText = Text.check(maxLength)

export const NonEmptyShortText = Text.check(Schema.isNonEmpty({ message: "must not be empty" }), maxLength)

/**
 * Makes a schema check its input before decoding it. `check` returns whether the input is allowed, or its issues;
 * `message` is that of a plain `false`. OpenAPI shows `documented`, by default the schema itself. Built on
 * `Schema.Any`, the only schema for which HttpApi does not walk the whole value.
 */
export const checkInput =
  (check: (input: unknown) => Schema.FilterOutput, message?: string, documented?: Schema.Top) =>
  <T, E>(schema: Schema.Codec<T, E>) => {
    const isAllowed = Schema.makeFilter(check, {
      ...(message === undefined ? {} : { message }),
      toJsonSchema: () => Schema.toJsonSchemaDocument(documented ?? schema).schema
    })
    const checked: Schema.Codec<E> = Schema.Any.check(isAllowed)
    return checked.pipe(Schema.decodeTo(schema, SchemaTransformation.passthrough()))
  }

/** Checks the length of a list before its elements, so refusing a long one is cheap. */
export const precheckLength = (max: number, message: string) =>
  checkInput((input) => !Array.isArray(input) || input.length <= max, message)

/** Maximum unknown members of an object to compare with the known ones. */
const maxCompared = 20

/**
 * Refuses an unknown member whose name is close to one of `names`, or that name in camel case, as a restriction that
 * would be lost. Adds the other faults of members, but not that the member which is likely meant is missing. Other
 * unknown members are left to the schema.
 */
export const refuseNearMisses =
  (names: ReadonlyArray<string>, documented?: Schema.Top) =>
  <T, E>(schema: Schema.Codec<T, E>) => {
    const nearMissesIn = (input: object) =>
      Object.keys(input)
        .filter((name) => !names.includes(name))
        .slice(0, maxCompared)
        .flatMap((name) => {
          const nearest = nearestWord(name.replace(/([a-z])(?=[A-Z])/g, "$1_"), names)
          // So close to a known name, it is no secret.
          return nearest === undefined ? [] : [{ name, nearest }]
        })
    const decode = Schema.decodeUnknownResult(schema, { errors: "all" })
    const issuesIn = (input: unknown): Schema.FilterOutput => {
      if (typeof input !== "object" || input === null || Array.isArray(input)) return true
      const misses = nearMissesIn(input)
      if (misses.length === 0) return true
      const others = Result.match(decode(input), {
        onSuccess: () => [],
        onFailure: ({ issue }) => issuesOf(issue).map(({ message, path }) => ({ path, issue: message }))
      })
      const isMeant = (name: Issue["path"][number] | undefined) => misses.some(({ nearest }) => name === nearest)
      return [
        ...misses.map(({ name, nearest }) => ({ path: [name], issue: `unknown member; the nearest is ${nearest}` })),
        ...others.filter(({ issue, path }) => path.length > 0 && !(issue === missingMember && isMeant(path[0])))
      ]
    }
    return schema.pipe(checkInput(issuesIn, undefined, documented))
  }

interface WithDefault extends Struct.Lambda {
  <S extends Schema.Constraint>(schema: S): Schema.withDecodingDefaultKey<S>
  readonly "~lambda.out": this["~lambda.in"] extends Schema.Constraint
    ? Schema.withDecodingDefaultKey<this["~lambda.in"]>
    : never
}

/** Makes a member optional. An absent member gets the `default` of the schema's annotations. */
export const withDefault = Struct.lambda<WithDefault>((schema) =>
  Schema.withDecodingDefaultKey<typeof schema>(Effect.succeed(Schema.resolveAnnotations(schema)?.default))(schema)
)

/** Refuses undeclared members at every depth, whatever the decoding options. */
export const closed = <T, E>(schema: Schema.Codec<T, E>): Schema.Codec<T, E> => {
  const parse = SchemaParser.decodeUnknownEffect(schema)
  const toJsonSchema = () => Schema.toJsonSchemaDocument(schema, { onExcessProperty: "error" }).schema
  // Accepts every value: the filter only gives OpenAPI the schema, and `parse` checks.
  const input: Schema.Codec<E> = Schema.Any.check(Schema.makeFilter(() => true, { toJsonSchema }))
  const output: Schema.Codec<T> = Schema.Any
  return input.pipe(
    Schema.decodeTo(
      output,
      SchemaTransformation.transformEffect({
        decode: (value, options) => parse(value, { ...options, onExcessProperty: "error" }),
        encode: SchemaParser.encodeEffect(schema)
      })
    )
  )
}

/** Makes a decoder of input that fails with all issues at once, but at most 100. */
export const decoderOf = <A>(schema: Schema.ConstraintCodec<A, unknown>, options: SchemaAST.ParseOptions = {}) => {
  const decode = Schema.decodeUnknownEffect(schema, { errors: "all", ...options })
  return (input: unknown): Effect.Effect<A, InvalidParams> =>
    Effect.mapError(decode(input), ({ issue }) => InvalidParams.ofSchema(issue))
}
