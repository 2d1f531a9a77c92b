import { Effect } from "effect"
import { KekRegistry } from "../service/KekRegistry.ts"
import { InvalidKeyring, type Keyring } from "./Keyring.ts"

/** Passes a keyring on whose keys are those that the database knows under their ids; otherwise nothing may be written. */
export const checkKeyring = Effect.fnUntraced(function* (keyring: Keyring["Service"]) {
  const registry = yield* KekRegistry
  const keks = Array.from(keyring.byId.values(), ({ check_value, id }) => ({ kek_id: id, check_value }))
  const differing = yield* registry.register(keks)
  if (differing.length === 0) return keyring
  const message = `expected the keys that the database knows; found other bytes under ${differing.join(", ")}`
  return yield* new InvalidKeyring({ message })
})
