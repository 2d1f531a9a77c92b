import { type BoundName, type Credential, memberNames, members } from "./Credential.ts"
import type { AccountId } from "./Identifiers.ts"

/** A provider key at rest: sealed under its own data key (DEK), which is wrapped by the key-encryption key `kek_id`. */
export interface SealedKey {
  readonly kek_id: string
  readonly wrapped_dek: Uint8Array
  readonly sealed: Uint8Array
}

/** The AAD of a sealed key: the key opens only with the same text. */
export interface SealingContext {
  /** The account whose calls to the key store wait in turn with those of others. */
  readonly account_id: AccountId
  readonly text: string
}

/** The fields that decide where and for whom a key may be used: its AAD. */
export type BoundCredential = Pick<Credential, BoundName> & { readonly account_id: AccountId }

const positionOf = (name: BoundName) => members[name].bound

/** The bound members in the order of the sealing context. */
export const boundNames = memberNames
  .filter((name): name is BoundName => "bound" in members[name])
  .sort((one, other) => positionOf(one) - positionOf(other))

/** The canonical encoding that sealing format 1 authenticates. */
export const encodeSealingContext = (credential: BoundCredential): string => {
  const values: Array<unknown> = ["byok/credential/1", credential.account_id]
  for (const name of boundNames) values.push(credential[name])
  return JSON.stringify(values)
}

export const contextOf = (credential: BoundCredential): SealingContext => ({
  account_id: credential.account_id,
  text: encodeSealingContext(credential)
})
