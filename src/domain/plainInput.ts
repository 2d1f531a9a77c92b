import { isPreserved } from "./checkInput.ts"
import { isStoredUuid } from "./Identifiers.ts"
import { keyFaultIn } from "./KeyMaterial.ts"
import { Region } from "./Region.ts"

/** Whether a member has a value that decodes to itself. */
export type Members = Readonly<Record<string, (value: unknown) => boolean>>

export const anyOf = (values: ReadonlyArray<unknown>) => {
  const known = new Set(values)
  return (value: unknown) => known.has(value)
}
export const orNull = (is: (value: unknown) => boolean) => (value: unknown) => value === null || is(value)
export const isString = (value: unknown) => typeof value === "string"
export const isBoolean = (value: unknown) => typeof value === "boolean"
export const isText = (value: unknown) => typeof value === "string" && isPreserved(value)
/** A text of no more units has no more characters. */
export const isShort = (value: unknown) => isText(value) && (value as string).length <= 255
export const isHash = (value: unknown) => typeof value === "string" && /^[a-f0-9]{64}$/.test(value)
export const isUuid = (value: unknown) => typeof value === "string" && isStoredUuid(value)
export const isWithin = (least: number, most: number) => (value: unknown) =>
  Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most

export const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

export const hasOnly = (given: Readonly<Record<string, unknown>>, members: Members): boolean => {
  for (const name in given) if (!Object.hasOwn(members, name) || members[name]?.(given[name]) !== true) return false
  return true
}

const listOf = (is: (value: unknown) => boolean, least: number) => (value: unknown) =>
  Array.isArray(value) && value.length >= least && value.length <= 100 && value.every(is)

/** What create and update take of a credential. */
export const plainMembers = {
  key: (value) => value !== "" && isText(value) && keyFaultIn(value as string) === undefined,
  name: orNull(isShort),
  disabled: isBoolean,
  is_fallback: isBoolean,
  is_required: isBoolean,
  is_byok_only: isBoolean,
  allowed_api_key_hashes: orNull(listOf(isHash, 1)),
  allowed_models: orNull(listOf(isShort, 0)),
  allowed_user_ids: orNull(listOf(isShort, 0)),
  declared_region: orNull(anyOf(Region.literals)),
  declared_zdr: orNull(isBoolean)
} as const satisfies Members
