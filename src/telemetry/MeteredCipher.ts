import { Effect, Layer } from "effect"
import { Cipher } from "../port/Cipher.ts"
import { makeTimed } from "./makeTimed.ts"
import { Meter } from "./Meter.ts"

/** Times the cipher below it. To open a key, verify it or seal it to another context, its data key is unwrapped. */
export const layer = Layer.effect(
  Cipher,
  Effect.gen(function* () {
    const cipher = yield* Cipher
    const { histogram } = yield* Meter
    const timed = (operation: string) =>
      makeTimed((attributes) => histogram("byok.crypto.operation.duration", { operation, ...attributes }))
    const [sealing, unwrapping] = [timed("seal"), timed("unwrap")]
    return {
      seal: (key, context) => sealing(cipher.seal(key, context)),
      reseal: (sealed, from, to) => sealing(cipher.reseal(sealed, from, to)),
      open: (sealed, context) => unwrapping(cipher.open(sealed, context)),
      holds: (sealed, context, key) => unwrapping(cipher.holds(sealed, context, key)),
      read: (sealed, context, use) => unwrapping(cipher.read(sealed, context, use)),
      prepare: (sealed, context) =>
        Effect.map(unwrapping(cipher.prepare(sealed, context)), ({ read }) => ({
          read: (use) => unwrapping(read(use))
        }))
    }
  })
)
