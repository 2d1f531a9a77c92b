import type { KeyEncryption } from "./KeyEncryption.ts"

type Keys = KeyEncryption["Service"]

/** Combines two stores while credentials move to the first: it seals with the first and opens with both. */
export const union = (first: Keys, second: Keys): Keys => {
  const storeOf = (kek_id: string) => (first.keks().some((kek) => kek.kek_id === kek_id) ? first : second)
  return {
    primary: first.primary,
    keks: () => [...first.keks(), ...second.keks()],
    wrap: (kek_id, dek, aad) => storeOf(kek_id).wrap(kek_id, dek, aad),
    unwrap: (kek_id, wrapped_dek, aad) => storeOf(kek_id).unwrap(kek_id, wrapped_dek, aad)
  }
}
