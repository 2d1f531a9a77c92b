import { Effect, Option, Schema, Struct } from "effect"
import { withDefault } from "./checkInput.ts"
import { credentialFields } from "./credentialFields.ts"
import { InvalidParams } from "./Errors.ts"
import { WorkspaceId } from "./Identifiers.ts"
import type { Issue } from "./Issue.ts"
import { malformedKey, readKeyMaterial } from "./KeyMaterial.ts"
import { GivenProvider } from "./Provider.ts"
import { regionConflicts } from "./Region.ts"

const { key, name, ...others } = credentialFields("create")

const Fields = Schema.Struct({
  key,
  provider: GivenProvider,
  name: withDefault(name),
  workspace_id: Schema.optionalKey(WorkspaceId),
  ...Struct.map(others, withDefault)
})
type Fields = typeof Fields.Type

interface Flags {
  readonly is_fallback: boolean
  readonly is_required: boolean
  readonly is_byok_only: boolean
}

/** What a fallback credential cannot be as well. */
const excluded = ["is_byok_only", "is_required"] as const

/**
 * Rules 2 and 3 of section 4.1 (D31). An update may have given only one of two members that conflict: the issue is then
 * reported there (L5).
 */
export const flagConflicts = (
  flags: Flags,
  given: Partial<Record<keyof Flags, unknown>> = flags
): ReadonlyArray<Issue> =>
  excluded.flatMap((flag) => {
    if (!flags.is_fallback || !flags[flag]) return []
    return given[flag] === undefined
      ? [{ path: ["is_fallback"], message: `cannot be combined with ${flag}` }]
      : [{ path: [flag], message: "cannot be combined with is_fallback" }]
  })

/** Key material must parse, and key and provider must allow the declared region (D28, D29, D30). */
const keyConflicts = ({ declared_region, key, provider }: Fields): ReadonlyArray<Issue> => {
  const material = readKeyMaterial(provider, key)
  return Option.isNone(material) ? [malformedKey] : regionConflicts(provider, declared_region, material.value.region)
}

/** The input of create, with every rule of section 4.1, over HTTP and in process alike. */
export const NewCredential = Fields.check(
  Schema.makeFilter((input: Fields) =>
    [...flagConflicts(input), ...keyConflicts(input)].map(({ message, path }) => ({ path, issue: message }))
  )
).annotate({ identifier: "NewCredential" })
export type NewCredential = typeof NewCredential.Type

const decode = Schema.decodeUnknownEffect(NewCredential, { errors: "all" })

/** Decodes the input of create, which may be anything. Fails with every issue at once, as HTTP answers. */
export const decodeNewCredential = (input: unknown): Effect.Effect<NewCredential, InvalidParams> =>
  Effect.mapError(decode(input), ({ issue }) => InvalidParams.ofSchema(issue))
