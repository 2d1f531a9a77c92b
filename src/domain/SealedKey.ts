import { type BoundName, type Credential, memberNames, members } from "./Credential.ts"
import type { AccountId } from "./Identifiers.ts"

/** A provider key at rest: sealed under its own data key (DEK), which is wrapped by the key-encryption key `kek_id`. */
export interface SealedKey {
  readonly kek_id: string
  readonly wrapped_dek: Uint8Array
  readonly sealed: Uint8Array
}

/** The text that a secret is sealed to, as a part of its AAD: the secret opens only with the same text. */
export type SealingContext = string

/** The members of a credential that decide where and for whom its key may be used. The key is sealed to them. */
export type BoundCredential = Pick<Credential, BoundName> & { readonly account_id: AccountId }

const positionOf = (name: BoundName) => members[name].bound

/** The bound members in the order of the sealing context. */
export const boundNames = memberNames
  .filter((name): name is BoundName => "bound" in members[name])
  .sort((one, other) => positionOf(one) - positionOf(other))

/** The sealing context of a credential. Its encoding must never change, or stored keys no longer open. */
export const contextOf = (credential: BoundCredential): SealingContext => {
  const values: Array<unknown> = ["byok/credential/1", credential.account_id]
  for (const name of boundNames) values.push(credential[name])
  return JSON.stringify(values)
}
