import { DateTime, Redacted, Result, Schema, Struct } from "effect"
import { checkInput, decoderOf, refuseNearMisses } from "./checkInput.ts"
import { type Credential, type FixedName, fixedNames, inputFields } from "./Credential.ts"
import type { Issue } from "./Issue.ts"
import { leakedKey, RawKey, readKeyMaterial } from "./KeyMaterial.ts"
import { labelOf } from "./labelOf.js"
import { flagConflicts } from "./NewCredential.ts"
import { takesRegionInKey } from "./Provider.ts"
import { type Region, regionConflicts } from "./Region.ts"

const changeableFields = { key: RawKey, ...inputFields("update") }

const fixedFields = Object.fromEntries(fixedNames.map((name) => [name, Schema.optionalKey(Schema.Unknown)])) as {
  readonly [Name in FixedName]: Schema.optionalKey<typeof Schema.Unknown>
}
const documentedSchema = Schema.Struct(Struct.map(changeableFields, Schema.optionalKey))
const knownFields = { ...documentedSchema.fields, ...fixedFields }
const nothingToChange = `must have a member that can be changed: ${Struct.keys(changeableFields).join(", ")}`

/**
 * Returns false for an object that has only unknown members, and so would change nothing (D47). An empty object is a
 * valid update; the schema refuses what is no object.
 */
const mayChange = (input: unknown) => {
  if (typeof input !== "object" || input === null || Array.isArray(input)) return true
  const names = Object.keys(input)
  return names.length === 0 || names.some((name) => Object.hasOwn(knownFields, name))
}

/**
 * The input of update. Absent members do not change, `null` clears a nullable member, a list replaces the stored one,
 * and unknown members beside known ones are ignored (D13), unless their name is close to a known one. Rules across members apply to the changed credential.
 */
export const CredentialChanges = Schema.Struct(knownFields)
  .pipe(
    checkInput(mayChange, nothingToChange, documentedSchema),
    refuseNearMisses(Struct.keys(knownFields), documentedSchema)
  )
  .annotate({ identifier: "CredentialChanges" })
export type CredentialChanges = typeof CredentialChanges.Type

export const ChangeableField = Schema.Literals(Struct.keys(changeableFields))
export type ChangeableField = typeof ChangeableField.Type

/** Facts that `changeCredential` cannot compute. A fact that the changes do not need is absent. */
export interface KeyFacts {
  /** Whether the new key equals the stored key. */
  readonly isSameKey?: boolean
  /** Whether the new key has a secret marked as leaked. */
  readonly isLeaked?: boolean
  /** The region in the stored key; null without one. */
  readonly storedRegion?: Region | null
}

/** A credential after a change. */
export interface ChangedCredential {
  readonly credential: Credential
  /** The fields of the input that change something. */
  readonly fields: ReadonlyArray<ChangeableField>
  /** Whether the key or a member of the sealing context changed. */
  readonly mustSeal: boolean
}

const isEqual = (one: unknown, other: unknown): boolean =>
  Array.isArray(one) && Array.isArray(other)
    ? one.length === other.length && one.every((element, index) => element === other[index])
    : one === other

/**
 * Applies changes to a stored credential. Fails with every rule of create that the result would break (D28 to D31),
 * every changed fixed member (D47) and a leaked key. Repeating the stored key changes nothing. If keys of the provider
 * may have a region, a new key sets `declared_region` to its own, unless the changes declare one (D29).
 */
export const changeCredential = (
  stored: Credential,
  { key, ...changes }: CredentialChanges,
  { isSameKey = false, isLeaked = false, storedRegion = null }: KeyFacts
): Result.Result<ChangedCredential, ReadonlyArray<Issue>> => {
  const { provider } = stored
  const parsed = key === undefined ? undefined : readKeyMaterial(provider, key)
  const material = parsed && Result.getOrUndefined(parsed)
  const replacement = isSameKey ? undefined : material
  const keyRegion = material === undefined ? storedRegion : material.region

  const wireForm = { ...stored, created_at: DateTime.formatIso(stored.created_at) }
  const fixedChanges = fixedNames.filter(
    (member) => changes[member] !== undefined && changes[member] !== wireForm[member]
  )
  const { declared_region } = changes
  // For keys that may have a region, null and a new key both reset `declared_region` to the key's region.
  const resetsRegion = takesRegionInKey(provider) && (declared_region === null || replacement !== undefined)
  const defaultRegion = resetsRegion ? keyRegion : declared_region === null ? null : stored.declared_region
  const credential: Credential = {
    ...stored,
    ...Struct.omit(changes, fixedNames),
    declared_region: declared_region ?? defaultRegion,
    ...(replacement === undefined ? {} : { label: labelOf(Redacted.value(replacement.labelSource)) })
  }

  const issues = [
    ...fixedChanges.map((member) => ({ path: [member], message: "cannot be changed" })),
    ...flagConflicts(credential, changes),
    ...(isLeaked ? [leakedKey] : []),
    ...(parsed !== undefined && Result.isFailure(parsed)
      ? parsed.failure
      : regionConflicts(provider, declared_region ?? null, keyRegion))
  ]
  if (issues.length > 0) return Result.fail(issues)
  const fields = ChangeableField.literals.filter((field) =>
    field === "key" ? replacement !== undefined : !isEqual(stored[field], credential[field])
  )
  return Result.succeed({ credential, fields, mustSeal: fields.some((field) => field !== "name") })
}

/** Decodes the input of update. Fails with up to 100 issues at once. */
export const decodeCredentialChanges = decoderOf(CredentialChanges)
