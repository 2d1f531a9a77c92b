import { DateTime, Effect, Redacted, Result, Schema, Struct } from "effect"
import { checkInput } from "./checkInput.ts"
import { type Credential, type FixedName, fixedNames, inputFields } from "./Credential.ts"
import { InvalidParams } from "./Errors.ts"
import type { Issue } from "./Issue.ts"
import { leakedKey, RawKey, readKeyMaterial } from "./KeyMaterial.ts"
import { labelOf } from "./Label.ts"
import { flagConflicts } from "./NewCredential.ts"
import { takesKeyMaterial } from "./Provider.ts"
import { type Region, regionConflicts } from "./Region.ts"

const fields = { key: RawKey, ...inputFields("update") }

const unchangeable = Object.fromEntries(fixedNames.map((name) => [name, Schema.optionalKey(Schema.Unknown)])) as {
  readonly [Name in FixedName]: Schema.optionalKey<typeof Schema.Unknown>
}
const changeable = Schema.Struct(Struct.map(fields, Schema.optionalKey))
const members = { ...changeable.fields, ...unchangeable }
const nothingToChange = `must have a member that can be changed: ${Struct.keys(fields).join(", ")}`

/** Whether an object is empty or has a member that is known: one that has others only would change nothing (D47). */
const mayChange = (input: unknown) => {
  const names = Object.keys(Object(input) as object)
  return (
    typeof input !== "object" ||
    Array.isArray(input) ||
    names.length === 0 ||
    names.some((name) => Object.hasOwn(members, name))
  )
}

/**
 * The input of update: a member that is absent stays as it is, `null` clears it where it may be null, and a list
 * replaces. Unknown members beside known ones are ignored (D13). The rules across members apply to the changed credential.
 */
export const CredentialChanges = Schema.Struct(members)
  .pipe(checkInput(mayChange, nothingToChange, changeable))
  .annotate({ identifier: "CredentialChanges" })
export type CredentialChanges = typeof CredentialChanges.Type

export const ChangeableField = Schema.Literals(Struct.keys(fields))
export type ChangeableField = typeof ChangeableField.Type

/** What opening the stored key has shown; nothing while no change asks for it. */
export interface StoredKey {
  readonly isGiven?: boolean
  /** Whether the key of the changes holds a secret that is marked as leaked. */
  readonly isLeaked?: boolean
  readonly region?: Region | null
}

export interface ChangedCredential {
  readonly credential: Credential
  /** The members that differ from before; empty if the changes change nothing. */
  readonly fields: ReadonlyArray<ChangeableField>
  /** Whether key or policy changed, so the key must be sealed again. */
  readonly mustSeal: boolean
}

const isEqual = (one: unknown, other: unknown): boolean =>
  Array.isArray(one) && Array.isArray(other)
    ? one.length === other.length && one.every((element, index) => element === other[index])
    : one === other

/**
 * Applies changes to a stored credential under the rules of create, or reports every rule that the result would break
 * (D28 to D31), and every member that cannot change and is not as stored (D47). A given key that is the stored one counts as not given. A new key of a provider that takes key material
 * brings its own region (D29).
 */
export const changeCredential = (
  stored: Credential,
  { key, ...changes }: CredentialChanges,
  { isGiven = false, isLeaked = false, region: storedRegion = null }: StoredKey
): Result.Result<ChangedCredential, ReadonlyArray<Issue>> => {
  const { provider } = stored
  const given = key === undefined ? undefined : readKeyMaterial(provider, key)
  const material = given && Result.getOrUndefined(given)
  const added = isGiven ? undefined : material
  const keyRegion = material === undefined ? storedRegion : material.region

  const shown = { ...stored, created_at: DateTime.formatIso(stored.created_at) }
  const moved = fixedNames.filter((member) => changes[member] !== undefined && changes[member] !== shown[member])
  const { declared_region } = changes
  const followsKey = takesKeyMaterial(provider) && (declared_region === null || added !== undefined)
  const credential: Credential = {
    ...stored,
    ...Struct.omit(changes, fixedNames),
    declared_region:
      declared_region ?? (followsKey ? keyRegion : declared_region === null ? null : stored.declared_region),
    ...(added === undefined ? {} : { label: labelOf(Redacted.value(added.labelled)) })
  }

  const issues = [
    ...moved.map((member) => ({ path: [member], message: "cannot be changed" })),
    ...flagConflicts(credential, changes),
    ...(isLeaked ? [leakedKey] : []),
    ...(given !== undefined && Result.isFailure(given)
      ? given.failure
      : regionConflicts(provider, declared_region ?? null, keyRegion))
  ]
  if (issues.length > 0) return Result.fail(issues)
  const fields = ChangeableField.literals.filter((field) =>
    field === "key" ? added !== undefined : !isEqual(stored[field], credential[field])
  )
  return Result.succeed({ credential, fields, mustSeal: fields.some((field) => field !== "name") })
}

const decode = Schema.decodeUnknownEffect(CredentialChanges, { errors: "all" })

/** Decodes the input of update, which may be anything. Fails with every issue at once, as HTTP answers. */
export const decodeCredentialChanges = (input: unknown): Effect.Effect<CredentialChanges, InvalidParams> =>
  Effect.mapError(decode(input), ({ issue }) => InvalidParams.ofSchema(issue))
