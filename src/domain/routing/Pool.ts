import type { Credential } from "../Credential.ts"
import type { Cooldowns } from "./Health.ts"

/**
 * Whether a row is what was sealed. Only `verified` rows are offered, and `unverified` ones in explanations made
 * without a keyring, which go by the columns. The others are excluded and remove shared capacity, because nobody can
 * tell what they demanded (E16, E17).
 */
export type Seal = "verified" | "unverified" | "altered" | "unknown_key" | "unsupported" | "unavailable"

/** Whether a list lets a value through. */
type Allows = (value: string | null) => boolean

/** A credential as a router sees it. */
export interface PooledCredential {
  readonly credential: Credential
  readonly key_version: number
  readonly leaked: boolean
  /** The version of the row in the database. */
  readonly row: string
  readonly seal: Seal
  /** Set if only tokens may leave the process, and the key that should sign them cannot (D58). */
  readonly cannotSign?: boolean
  /** The cooldowns that the database had when the row was read. */
  readonly stored: Cooldowns
  /** The lists as questions that are quick to answer, however long the lists are. */
  readonly allowsApiKey: Allows
  readonly allowsUser: Allows
  readonly allowsModel: Allows
}

/** The credentials of a workspace and provider in the order in which they are tried. */
export type Pool = ReadonlyArray<PooledCredential>

/** Longer lists are looked up in a set: searching 100 models takes longer than the rest of a plan. */
const longestSearched = 8

/** `null` restricts nothing, `[]` lets nothing through, and a missing value is in no list (E9). */
const allows = (list: ReadonlyArray<string | null> | null): Allows => {
  if (list === null) return () => true
  if (list.length <= longestSearched) return (value) => list.includes(value)
  const set = new Set(list)
  return (value) => set.has(value)
}

type Lists = "allowsApiKey" | "allowsUser" | "allowsModel"
type Unlisted = Omit<PooledCredential, Lists>

/** Prioritized before fallback, then `sort_order`, `created_at` and `id` (D32). */
const compare = ({ credential: a }: Unlisted, { credential: b }: Unlisted): number =>
  Number(a.is_fallback) - Number(b.is_fallback) ||
  a.sort_order - b.sort_order ||
  a.created_at.epochMilliseconds - b.created_at.epochMilliseconds ||
  (a.id < b.id ? -1 : 1)

/** Prepares a pool once for all requests that it will serve. */
export const poolOf = <Row extends Unlisted>(
  credentials: ReadonlyArray<Row>
): ReadonlyArray<Row & Pick<PooledCredential, Lists>> =>
  credentials.toSorted(compare).map((pooled) => ({
    ...pooled,
    allowsApiKey: allows(pooled.credential.allowed_api_key_hashes),
    allowsUser: allows(pooled.credential.allowed_user_ids),
    allowsModel: allows(pooled.credential.allowed_models)
  }))
