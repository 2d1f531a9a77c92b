import { Effect, Option, Schema } from "effect"
import { ApiKeyHash } from "./ApiKeyHash.ts"
import type { Issue } from "./Issue.ts"
import { readKeyMaterial } from "./KeyMaterial.ts"
import { mayDeclare, Provider, takesKeyMaterial } from "./Provider.ts"
import { Region } from "./Region.ts"
import { Text } from "./Text.ts"
import { withMaxLength } from "./withMaxLength.ts"
import { WorkspaceId } from "./WorkspaceId.ts"

const orNull = <S extends Schema.Constraint>(schema: S, message: string, description: string) =>
  Schema.NullOr(schema)
    .annotate({ message, description, default: null })
    .pipe(Schema.withDecodingDefaultKey<Schema.NullOr<S>>(Effect.succeed(null)))

const flag = (description: string) =>
  Schema.Boolean.annotate({ message: "must be true or false", description, default: false }).pipe(
    Schema.withDecodingDefaultKey(Effect.succeed(false))
  )

const tooLong = "must have at most 100 elements"

const listOrNull = <T extends string>(element: Schema.Codec<T, string>, minLength: 0 | 1, description: string) => {
  const list = Schema.Array(element).check(Schema.isMaxLength(100, { message: tooLong }))
  const atLeast1 = Schema.isMinLength(1, { message: "must have at least 1 element" })
  return Schema.NullOr(minLength === 1 ? list.check(atLeast1) : list)
    .annotate({ message: "must be a list of strings or null", description, default: null })
    .pipe(withMaxLength(100, tooLong), Schema.withDecodingDefaultKey(Effect.succeed(null)))
}

const Fields = Schema.Struct({
  key: Schema.RedactedFromValue(
    Text.check(
      Schema.isNonEmpty({
        message: "must not be empty",
        description:
          "Raw provider key. Encrypted at rest, never returned. For openai and fireworks it may be a JSON object with api_key and region."
      })
    )
  ),
  provider: Provider,
  name: orNull(
    Text.check(Schema.isMaxCodePoints(255, { message: "must have at most 255 characters" })),
    "must be a string or null",
    "Human-readable name."
  ),
  workspace_id: Schema.optionalKey(WorkspaceId),
  allowed_api_key_hashes: listOrNull(
    ApiKeyHash,
    1,
    "SHA-256 of each API key of the account that may use the credential; null for no restriction."
  ),
  allowed_models: listOrNull(Text, 0, "Model slugs; null for no restriction, an empty list matches nothing."),
  allowed_user_ids: listOrNull(Text, 0, "User ids; null for no restriction, an empty list matches nothing."),
  declared_region: orNull(
    Region,
    "must be global, europe, us or null",
    "Declared data region. For openai and fireworks it must match the region of the key; only azure may declare europe or us otherwise."
  ),
  declared_zdr: orNull(
    Schema.Boolean,
    "must be true, false or null",
    "Declared zero data retention; null inherits the service's policy for the endpoint."
  ),
  disabled: flag("Create the credential disabled."),
  is_required: flag("Remove the provider's shared endpoints for every model. Not for fallback credentials."),
  is_fallback: flag("Use only after non-fallback keys of the provider have been tried. Not with is_byok_only."),
  is_byok_only: flag("Remove the provider's shared endpoints for the models this credential applies to.")
})
type Fields = typeof Fields.Type

/** Rules 2 and 3 of section 4.1 (D31). */
const flagConflicts = ({ is_byok_only, is_fallback, is_required }: Fields): ReadonlyArray<Issue> => [
  ...(is_fallback && is_byok_only ? [{ path: ["is_byok_only"], message: "cannot be combined with is_fallback" }] : []),
  ...(is_fallback && is_required ? [{ path: ["is_required"], message: "cannot be combined with is_fallback" }] : [])
]

/** Key material must parse, and key and provider must allow the declared region (D28, D29, D30). */
const regionConflicts = ({ declared_region, key, provider }: Fields): ReadonlyArray<Issue> => {
  const material = readKeyMaterial(provider, key)
  if (Option.isNone(material)) {
    const message =
      "must be a plain key or a JSON object with a non-empty api_key and, if it has a region, one of global, europe, us or eu"
    return [{ path: ["key"], message }]
  }
  const refused = (message: string) => [{ path: ["declared_region"], message }]
  if (!takesKeyMaterial(provider)) {
    return mayDeclare(provider, declared_region) ? [] : refused("must be global or null for this provider")
  }
  const { region } = material.value
  if (declared_region === null || declared_region === region) return []
  if (region !== null) return refused("must match the region of the key")
  if (declared_region === "global") return []
  return refused(
    "must be global or null for a key without a region: only a JSON object with api_key and region declares another"
  )
}

/** The input of create, with every rule of section 4.1, over HTTP and in process alike. */
export const NewCredential = Fields.check(
  Schema.makeFilter((input: Fields) =>
    [...flagConflicts(input), ...regionConflicts(input)].map(({ message, path }) => ({ path, issue: message }))
  )
).annotate({ identifier: "NewCredential" })
export type NewCredential = typeof NewCredential.Type
