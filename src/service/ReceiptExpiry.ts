import { Context, DateTime, Duration, Effect, Layer } from "effect"
import { Receipts } from "../port/Receipts.ts"

/** A receipt is kept for a day, and an hour more because the clocks of several instances differ. */
const retention = Duration.hours(25)

/** How long the service waits before it looks for old receipts, each time. */
export const interval = Context.Reference("byok/ReceiptExpiry/interval", { defaultValue: () => Duration.minutes(10) })

/** So many are removed at a time, with a pause between: a request never waits for long. */
const pause = Duration.millis(200)
const batch = 500

/** Removes receipts that are old enough. Instances share the work: each passes over what another one is removing. */
const forgetAll = Effect.gen(function* () {
  const { forget } = yield* Receipts
  const before = DateTime.subtractDuration(yield* DateTime.now, retention)
  while ((yield* forget(before, batch)) === batch) yield* Effect.sleep(pause)
})

/** Runs beside the service until it stops; what fails is tried again the next time. */
export const layer = Layer.effectDiscard(
  Effect.flatMap(interval, Effect.sleep).pipe(
    Effect.andThen(Effect.catchCause(forgetAll, (cause) => Effect.logWarning("Old receipts were not removed", cause))),
    Effect.forever,
    Effect.forkScoped
  )
)
