import { Context, Duration, Effect, Layer } from "effect"
import { IdempotencyRecords } from "../../port/IdempotencyRecords.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"

/** How long records are kept: a day, plus an hour in case a database server with another clock takes over. */
const retention = Duration.hours(25)

/** Pause between searches for old idempotency records. */
export const interval = Context.Reference("byok/IdempotencyRecordExpiry/interval", {
  defaultValue: () => Duration.minutes(10)
})

/** Pause between batches, so that requests never wait long. */
const pause = Duration.millis(200)
const batchSize = 500

const deleteExpired = Effect.gen(function* () {
  const { deleteOlderThan } = yield* IdempotencyRecords
  while ((yield* deleteOlderThan(retention, batchSize)) === batchSize) yield* Effect.sleep(pause)
})

/** Deletes old idempotency records until the service stops. Instances skip rows that another one is deleting. */
export const layer = Layer.effectDiscard(
  Effect.flatMap(interval, (every) =>
    repeatInBackground(every, deleteExpired, "Old idempotency records could not be deleted")
  )
)
