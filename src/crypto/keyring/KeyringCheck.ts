import { Effect } from "effect"
import { KekRegistry } from "../../port/KekRegistry.ts"
import type { KnownKek } from "../KeyEncryption.ts"
import { InvalidKeyring, type Ring } from "./Keyring.ts"

/** The database knows other bytes under these ids. */
export const otherBytes = (kek_ids: ReadonlyArray<string>) =>
  new InvalidKeyring({
    message: `expected the keys that the database knows; found other bytes under ${kek_ids.join(", ")}`
  })

/** Registers new keys; fails if the database knows other bytes under one of the ids. */
export const checkKeks = Effect.fnUntraced(function* (keks: ReadonlyArray<KnownKek>) {
  const differing = yield* (yield* KekRegistry).register(keks)
  if (differing.length > 0) return yield* otherBytes(differing)
})

/** Fails if the primary key is retired. */
export const checkPrimary = Effect.fnUntraced(function* (kek_id: string) {
  const [primary] = yield* (yield* KekRegistry).known([kek_id])
  if (primary?.retired !== true) return
  return yield* new InvalidKeyring({ message: `expected a primary key that is not retired; found ${kek_id}` })
})

/** Checks a keyring that only opens, and returns it. */
export const checkOpening = (ring: Ring) =>
  Effect.as(checkKeks(Array.from(ring.byId.values(), ({ check_value, id }) => ({ kek_id: id, check_value }))), ring)

/** Checks a keyring that seals, and returns it. */
export const checkKeyring = (ring: Ring) =>
  Effect.tap(checkOpening(ring), ({ primary }) => (primary === undefined ? Effect.void : checkPrimary(primary.id)))
