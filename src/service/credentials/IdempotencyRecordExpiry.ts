import { Context, Duration, Effect, Layer } from "effect"
import { IdempotencyRecords } from "../../port/IdempotencyRecords.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"

/** Idempotency records are kept for a day, plus an hour for a database server that takes over with another clock. */
const retention = Duration.hours(25)

/** How long to wait before each search for old idempotency records. */
export const interval = Context.Reference("byok/IdempotencyRecordExpiry/interval", {
  defaultValue: () => Duration.minutes(10)
})

/** Deletes in batches with a pause between them, so that requests never wait long. */
const pause = Duration.millis(200)
const batch = 500

/** Deletes old idempotency records. Instances share the work: each skips what another is deleting. */
const forgetOld = Effect.gen(function* () {
  const { forget } = yield* IdempotencyRecords
  while ((yield* forget(retention, batch)) === batch) yield* Effect.sleep(pause)
})

export const layer = Layer.effectDiscard(
  Effect.flatMap(interval, (every) =>
    repeatInBackground(every, forgetOld, "Old idempotency records could not be deleted")
  )
)
