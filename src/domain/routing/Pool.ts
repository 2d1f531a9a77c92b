import type { Credential } from "../Credential.ts"
import type { Cooldowns } from "./Health.ts"

/**
 * Whether a row matches its seal. Plans use `verified` rows; explanations without a keyring use `unverified` ones. Others are
 * excluded and remove shared capacity, because they may have forbidden it (E16, E17).
 */
export type Seal = "verified" | "unverified" | "altered" | "unknown_key" | "unsupported" | "unavailable"

type Allows = (value: string | null) => boolean

/** A credential as a router sees it. */
export interface PooledCredential {
  readonly credential: Credential
  readonly key_version: number
  readonly leaked: boolean
  /** Version of the database row. */
  readonly row: string
  readonly seal: Seal
  /** Whether only tokens may leave the process and the key cannot sign them (D58). */
  readonly cannotSign?: boolean
  /** Cooldowns in the database when the row was read. */
  readonly stored: Cooldowns
  readonly allowsApiKey: Allows
  readonly allowsUser: Allows
  readonly allowsModel: Allows
}

/** The credentials of a workspace and provider in the order of attempts. */
export type Pool = ReadonlyArray<PooledCredential>

/** Longer lists become sets: searching 100 models takes longer than the rest of a plan. */
const longestSearched = 8

/** `null` allows everything and `[]` nothing; no list holds a missing value (E9). */
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

/** Sorts a pool and indexes its lists. */
export const poolOf = <Row extends Unlisted>(
  credentials: ReadonlyArray<Row>
): ReadonlyArray<Row & Pick<PooledCredential, Lists>> =>
  credentials.toSorted(compare).map((pooled) => ({
    ...pooled,
    allowsApiKey: allows(pooled.credential.allowed_api_key_hashes),
    allowsUser: allows(pooled.credential.allowed_user_ids),
    allowsModel: allows(pooled.credential.allowed_models)
  }))
