import type { Credential } from "../Credential.ts"

/**
 * Whether a row is what was sealed. Only `verified` rows are offered, and `unverified` ones in explanations made
 * without a keyring, which go by the columns. The others are excluded, and all but `unavailable` remove shared
 * capacity, because what they demanded is unknown (E16, E17).
 */
export type Seal = "verified" | "unverified" | "altered" | "unknown_key" | "unsupported" | "unavailable"

/** A credential as a router sees it; `row` is its version in the database. */
export interface PooledCredential {
  readonly credential: Credential
  readonly key_version: number
  readonly leaked: boolean
  readonly row: string
  readonly seal: Seal
}
