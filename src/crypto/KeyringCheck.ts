import { Effect } from "effect"
import { KekRegistry } from "../service/KekRegistry.ts"
import { InvalidKeyring, type Ring } from "./Keyring.ts"

/**
 * Passes a keyring on whose keys are those that the database knows under their ids, and whose first key was not retired;
 * otherwise nothing may be written.
 */
export const checkKeyring = Effect.fnUntraced(function* (ring: Ring) {
  const registry = yield* KekRegistry
  const keks = Array.from(ring.byId.values(), ({ check_value, id }) => ({ kek_id: id, check_value }))
  const differing = yield* registry.register(keks)
  if (differing.length > 0) {
    const message = `expected the keys that the database knows; found other bytes under ${differing.join(", ")}`
    return yield* new InvalidKeyring({ message })
  }
  if (ring.primary === undefined) return ring
  const [primary] = yield* registry.known([ring.primary.id])
  if (primary?.retired !== true) return ring
  return yield* new InvalidKeyring({
    message: `expected a first key that may seal; found the retired ${primary.kek_id}`
  })
})
