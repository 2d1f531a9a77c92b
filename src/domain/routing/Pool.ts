import type { Credential } from "../Credential.ts"
import type { Cooldowns } from "./Health.ts"

/**
 * Result of checking a credential's row against its seal. Plans use `verified` rows; explanations made without a
 * keyring use `unverified` ones. Any other result excludes the credential, and also removes the provider's shared
 * capacity: the credential may forbid that, and what its row says about it cannot be trusted (E16, E17).
 */
export type Seal = "verified" | "unverified" | UntrustedSeal

/** The seals of rows that plans do not use. */
export const untrustedSeals = ["altered", "unknown_key", "unsupported"] as const
export type UntrustedSeal = (typeof untrustedSeals)[number]

/** Whether an allow list of the credential allows the request's value; pass null if the request has none. */
type Allows = (value: string | null) => boolean

/** A credential with everything that a plan needs. */
export interface PooledCredential {
  readonly credential: Credential
  readonly key_version: number
  readonly leaked: boolean
  /** Opaque version of the database row: changes with every change of the row. */
  readonly row: string
  readonly seal: Seal
  /** Whether the key is unusable: only signed tokens may leave the process, and this key cannot sign any (D58). */
  readonly cannotSign?: boolean
  /** Cooldowns as last read from the database. */
  readonly stored: Cooldowns
  readonly allowsApiKey: Allows
  readonly allowsUser: Allows
  readonly allowsModel: Allows
}

/** The credentials of a workspace and provider, each section in the order of attempts. */
export type Pool = ReadonlyArray<PooledCredential>

/** Longer lists become sets, because searching a list of 100 models takes longer than the rest of a plan. */
const maxSearchedLength = 8

/** Indexes an allow list: `null` allows everything, `[]` nothing. A missing value needs a `null` list (E9). */
const allows = (list: ReadonlyArray<string | null> | null): Allows => {
  if (list === null) return () => true
  if (list.length <= maxSearchedLength) return (value) => list.includes(value)
  const set = new Set(list)
  return (value) => set.has(value)
}

type Predicate = "allowsApiKey" | "allowsUser" | "allowsModel"
type UnindexedCredential = Omit<PooledCredential, Predicate>

/** Orders by `sort_order`, `created_at` and `id` (D32). */
const compare = ({ credential: a }: UnindexedCredential, { credential: b }: UnindexedCredential): number =>
  a.sort_order - b.sort_order ||
  a.created_at.epochMilliseconds - b.created_at.epochMilliseconds ||
  (a.id < b.id ? -1 : 1)

/** Sorts credentials and indexes their lists. */
export const poolOf = <Row extends UnindexedCredential>(
  credentials: ReadonlyArray<Row>
): ReadonlyArray<Row & Pick<PooledCredential, Predicate>> =>
  credentials.toSorted(compare).map((pooled) => ({
    ...pooled,
    allowsApiKey: allows(pooled.credential.allowed_api_key_hashes),
    allowsUser: allows(pooled.credential.allowed_user_ids),
    allowsModel: allows(pooled.credential.allowed_models)
  }))
