/** The key of a row of credentials. Whatever reads the credentials of all accounts does so in this order. */
export interface CredentialKey {
  readonly account_id: string
  readonly id: string
}

export const keyOfAll = (uuid: string): CredentialKey => ({ account_id: uuid, id: uuid })

/** Before the first key. */
export const lowest = keyOfAll("00000000-0000-0000-0000-000000000000")

export const cursorOf = ({ account_id, id }: CredentialKey) => `${account_id}/${id}`

/** The key that a cursor names. */
export const keyOf = (cursor: string): CredentialKey => {
  const [account_id = lowest.account_id, id = lowest.id] = cursor.split("/")
  return { account_id, id }
}

/** Statements that lock several rows lock them in one order, so that no two transactions wait for each other. */
export const inLockOrder = <A>(nameOf: (one: A) => string, all: ReadonlyArray<A>) =>
  all.toSorted((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1))
