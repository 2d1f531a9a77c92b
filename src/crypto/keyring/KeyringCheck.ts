import { Effect } from "effect"
import { KekRegistry } from "../../port/KekRegistry.ts"
import type { KnownKek } from "../KeyEncryption.ts"
import { InvalidKeyring, type Ring } from "./Keyring.ts"

/** Fails unless the keys are those that the database knows under their ids; otherwise nothing may be written. */
export const checkKeks = Effect.fnUntraced(function* (keks: ReadonlyArray<KnownKek>) {
  const differing = yield* (yield* KekRegistry).register(keks)
  if (differing.length === 0) return
  const message = `expected the keys that the database knows; found other bytes under ${differing.join(", ")}`
  return yield* new InvalidKeyring({ message })
})

/** Fails if the key that is to seal was retired. */
export const checkPrimary = Effect.fnUntraced(function* (kek_id: string) {
  const [primary] = yield* (yield* KekRegistry).known([kek_id])
  if (primary?.retired !== true) return
  return yield* new InvalidKeyring({ message: `expected a first key that may seal; found the retired ${kek_id}` })
})

/** Passes on a keyring that only opens, and whose keys are those that the database knows. */
export const checkOpening = (ring: Ring) =>
  Effect.as(checkKeks(Array.from(ring.byId.values(), ({ check_value, id }) => ({ kek_id: id, check_value }))), ring)

/** The same for a keyring that seals. */
export const checkKeyring = (ring: Ring) =>
  Effect.tap(checkOpening(ring), ({ primary }) => (primary === undefined ? Effect.void : checkPrimary(primary.id)))
