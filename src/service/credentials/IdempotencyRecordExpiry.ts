import { Context, Duration, Effect, Layer } from "effect"
import { IdempotencyRecords } from "../../port/IdempotencyRecords.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"

/** A day, plus an hour for the clock of a database server that takes over. */
const retention = Duration.hours(25)

/** Pause between searches for old idempotency records. */
export const interval = Context.Reference("byok/IdempotencyRecordExpiry/interval", {
  defaultValue: () => Duration.minutes(10)
})

/** Pause between batches, so that requests never wait long. */
const pause = Duration.millis(200)
const batch = 500

/** Deletes old idempotency records; each instance skips rows that another is deleting. */
const deleteExpired = Effect.gen(function* () {
  const { deleteOlderThan } = yield* IdempotencyRecords
  while ((yield* deleteOlderThan(retention, batch)) === batch) yield* Effect.sleep(pause)
})

export const layer = Layer.effectDiscard(
  Effect.flatMap(interval, (every) =>
    repeatInBackground(every, deleteExpired, "Old idempotency records could not be deleted")
  )
)
