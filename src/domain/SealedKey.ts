import { type BoundName, type Credential, memberNames, members } from "./Credential.ts"
import type { AccountId } from "./Identifiers.ts"

/** A provider key at rest: sealed under its own data key (DEK), which is wrapped by the key-encryption key `kek_id`. */
export interface SealedKey {
  readonly kek_id: string
  readonly wrapped_dek: Uint8Array
  readonly sealed: Uint8Array
}

/** What a sealed key is bound to, as its canonical text: if that differs in any way, the key no longer opens. */
export interface SealingContext {
  /** Whose turn it is where accounts wait for the key store. */
  readonly account_id: AccountId
  readonly text: string
}

/** What the key of a credential is bound to: every field that decides where and for whom it may be used. */
export type BoundCredential = Pick<Credential, BoundName> & { readonly account_id: AccountId }

const positionOf = (name: BoundName) => members[name].bound

/** The names of the bound members, in the order of the context. */
export const boundNames = memberNames
  .filter((name): name is BoundName => "bound" in members[name])
  .sort((one, other) => positionOf(one) - positionOf(other))

/** The canonical encoding of a credential that sealing format 1 authenticates. */
export const encodeSealingContext = (credential: BoundCredential): string => {
  const values: Array<unknown> = ["byok/credential/1", credential.account_id]
  for (const name of boundNames) values.push(credential[name])
  return JSON.stringify(values)
}

export const contextOf = (credential: BoundCredential): SealingContext => ({
  account_id: credential.account_id,
  text: encodeSealingContext(credential)
})
