import { Effect, Result, Schema, SchemaIssue, SchemaTransformation, Struct } from "effect"
import { decoderOf, refuseNearMisses, withDefault } from "./checkInput.ts"
import { inputFields, memberNames, members } from "./Credential.ts"
import type { Issue } from "./Issue.ts"
import { type KeyMaterial, RawKey, readKeyMaterial } from "./KeyMaterial.ts"
import { regionConflicts } from "./Region.ts"

const Fields = Schema.Struct({
  key: RawKey,
  provider: members.provider.createOnly,
  workspace_id: members.workspace_id.createOnly,
  ...Struct.map(inputFields("create"), withDefault)
})
type Fields = typeof Fields.Type

interface Flags {
  readonly is_fallback: boolean
  readonly is_required: boolean
  readonly is_byok_only: boolean
}

/** The flags that `is_fallback` excludes. */
const notWithFallback = ["is_byok_only", "is_required"] as const

/** Reports flags that exclude each other (D31). Each issue is at a flag that `changes` sets (L5). */
export const flagConflicts = (
  flags: Flags,
  changes: Partial<Record<keyof Flags, unknown>> = flags
): ReadonlyArray<Issue> =>
  notWithFallback.flatMap((flag) => {
    if (!flags.is_fallback || !flags[flag]) return []
    return changes[flag] === undefined
      ? [{ path: ["is_fallback"], message: `cannot be combined with ${flag}` }]
      : [{ path: [flag], message: "cannot be combined with is_fallback" }]
  })

/** Reports invalid key material and members that contradict each other (D28 to D31). */
const conflictsIn = (
  fields: Fields,
  material: Result.Result<KeyMaterial, ReadonlyArray<Issue>>
): ReadonlyArray<Issue> => [
  ...flagConflicts(fields),
  ...Result.match(material, {
    onFailure: (issues) => issues,
    onSuccess: ({ region }) => regionConflicts(fields.provider, fields.declared_region, region)
  })
]

/** A decoded create with its parsed key. */
export type NewCredential = Fields & { readonly material: KeyMaterial }

const withMaterial = (fields: Fields): Effect.Effect<NewCredential, SchemaIssue.Issue> => {
  const material = readKeyMaterial(fields.provider, fields.key)
  const [first, ...others] = conflictsIn(fields, material).map(
    ({ message, path }) => new SchemaIssue.Pointer(path, new SchemaIssue.InvalidValue({ message }))
  )
  return first === undefined
    ? Effect.succeed({ ...fields, material: Result.getOrThrow(material) })
    : Effect.fail(new SchemaIssue.Composite(Fields.ast, [first, ...others]))
}

/**
 * The input of create. Decoding checks each member, and that they do not contradict each other (section 4.1). Unknown
 * members are ignored (D13), unless their name is close to a known one.
 */
export const NewCredential = Fields.pipe(
  Schema.decodeTo<Schema.Codec<NewCredential>, typeof Fields>(
    Schema.Any,
    SchemaTransformation.transformEffect({
      decode: withMaterial,
      encode: ({ material: _, ...fields }) => Effect.succeed(fields)
    })
  ),
  refuseNearMisses(Struct.keys(Fields.fields), Fields)
).annotate({ identifier: "NewCredential" })

/** Decodes the input of create. Fails with up to 100 issues at once. */
export const decodeNewCredential = decoderOf(NewCredential)

const createMemberNames = memberNames.filter((name) => "createOnly" in members[name] || "input" in members[name]).sort()

/**
 * The members of a create that its fingerprint covers besides the key, sorted by name. Omits members with their default
 * value, so the fingerprint stays the same when a later version adds a member.
 */
export const fingerprintMembers = (input: Readonly<Record<string, unknown>>) =>
  createMemberNames.flatMap((name) => {
    const member = members[name]
    const defaultValue = "default" in member ? member.default : undefined
    return input[name] === undefined || input[name] === defaultValue ? [] : [[name, input[name]] as const]
  })
