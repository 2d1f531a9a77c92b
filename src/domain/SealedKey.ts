import { type BoundName, type Credential, type Members, members } from "./Credential.ts"
import type { AccountId } from "./Identifiers.ts"

/** A provider key at rest: sealed under its own data key (DEK), which is wrapped by the key-encryption key `kek_id`. */
export interface SealedKey {
  readonly kek_id: string
  readonly wrapped_dek: Uint8Array
  readonly sealed: Uint8Array
}

/** What a sealed key is bound to: every field that decides where and for whom it may be used. */
export type SealingContext = Pick<Credential, BoundName> & { readonly account_id: AccountId }

/** The bound members of a table in the order of the context. */
const boundIn = (table: Members) =>
  Object.entries(table)
    .flatMap(([name, { added, bound, default: absent }]) =>
      bound === undefined ? [] : [{ name, added, bound, absent }]
    )
    .sort((one, other) => one.bound - other.bound)

/** The names of the bound members, in the order of the context. */
export const boundNames = boundIn(members).map(({ name }) => name as BoundName)

/** Makes the encoder of contexts with the members of a table. A member that was added comes by name, if it has a value. */
export const makeContextEncoder = (table: Members) => {
  const first = boundIn(table).filter(({ added }) => added === undefined)
  const later = boundIn(table).filter(({ added }) => added !== undefined)
  return (context: Readonly<Record<string, unknown>>): string => {
    const values: Array<unknown> = ["byok/credential/1", context["account_id"]]
    for (const { name } of first) values.push(context[name])
    for (const { absent, name } of later) if (context[name] !== absent) values.push([name, context[name]])
    return JSON.stringify(values)
  }
}

/** The canonical encoding that sealing format 1 authenticates: if a bound field changes, the key no longer opens. */
export const encodeSealingContext: (context: SealingContext) => string = makeContextEncoder(members)
