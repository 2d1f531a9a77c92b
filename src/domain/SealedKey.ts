import { type BoundName, type Credential, memberNames, members } from "./Credential.ts"
import type { AccountId } from "./Identifiers.ts"

/** A provider key at rest: sealed under its own data key (DEK), which is wrapped by the key-encryption key `kek_id`. */
export interface SealedKey {
  readonly kek_id: string
  readonly wrapped_dek: Uint8Array
  readonly sealed: Uint8Array
}

/** What a secret is sealed to: it opens only with the same `text`, which is part of its AAD. */
export interface SealingContext {
  /** The account in whose queue calls to the key store wait. */
  readonly account_id: AccountId
  readonly text: string
}

/** The members of a credential that decide where and for whom its key may be used. The key is sealed to them. */
export type BoundCredential = Pick<Credential, BoundName> & { readonly account_id: AccountId }

const positionOf = (name: BoundName) => members[name].bound

/** The bound members in the order of the sealing context. */
export const boundNames = memberNames
  .filter((name): name is BoundName => "bound" in members[name])
  .sort((one, other) => positionOf(one) - positionOf(other))

/** The `text` of a credential's sealing context. Must never change, or stored keys no longer open. */
export const encodeSealingContext = (credential: BoundCredential): string => {
  const values: Array<unknown> = ["byok/credential/1", credential.account_id]
  for (const name of boundNames) values.push(credential[name])
  return JSON.stringify(values)
}

export const contextOf = (credential: BoundCredential): SealingContext => ({
  account_id: credential.account_id,
  text: encodeSealingContext(credential)
})
