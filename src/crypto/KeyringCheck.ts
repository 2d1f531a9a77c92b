import { Effect } from "effect"
import { KekRegistry } from "../service/KekRegistry.ts"
import type { KnownKek } from "./KeyEncryption.ts"
import { InvalidKeyring, type Keyring } from "./Keyring.ts"

/** Fails unless the keys are those that the database knows under their ids; otherwise nothing may be written. */
export const checkKeks = Effect.fnUntraced(function* (keks: ReadonlyArray<KnownKek>) {
  const differing = yield* (yield* KekRegistry).register(keks)
  if (differing.length === 0) return
  const message = `expected the keys that the database knows; found other bytes under ${differing.join(", ")}`
  return yield* new InvalidKeyring({ message })
})

/** Passes a keyring on whose keys are those that the database knows under their ids. */
export const checkKeyring = (keyring: Keyring["Service"]) =>
  Effect.as(
    checkKeks(Array.from(keyring.byId.values(), ({ check_value, id }) => ({ kek_id: id, check_value }))),
    keyring
  )
