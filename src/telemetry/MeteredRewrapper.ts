import { Effect, Layer, Result } from "effect"
import { Rewrapper } from "../port/Rewrapper.ts"
import { makeTimed } from "./makeTimed.ts"
import { Meter } from "./Meter.ts"

/** Times the rewrapper below it. */
export const layer = Layer.effect(
  Rewrapper,
  Effect.gen(function* () {
    const rewrapper = yield* Rewrapper
    const { histogram } = yield* Meter
    const timed = makeTimed((attributes) =>
      histogram("byok.crypto.operation.duration", { operation: "rewrap", ...attributes })
    )
    return {
      ...rewrapper,
      rewrap: (sealed, context) =>
        timed(rewrapper.rewrap(sealed, context), (done) => (Result.isFailure(done) ? done.failure._tag : undefined))
    }
  })
)
