import { Effect, Layer } from "effect"
import { DatabaseMeter, type LaneMeter, type LaneName } from "../port/DatabaseMeter.ts"
import { eachOnce } from "./eachOnce.ts"
import { Meter } from "./Meter.ts"

export const layer = Layer.effect(
  DatabaseMeter,
  Effect.map(Meter, ({ counter, gauge, histogram }) => {
    const ranOf = eachOnce((operation: string) =>
      eachOnce((error: string | undefined) =>
        histogram("db.client.operation.duration", {
          "db.operation.name": operation,
          ...(error === undefined ? {} : { "error.type": error })
        })
      )
    )
    const batchedOf = eachOnce((operation: string) =>
      histogram("byok.db.batch.size", { "db.operation.name": operation })
    )
    return eachOnce((lane: LaneName): LaneMeter => {
      const queues: Array<() => number> = []
      gauge("byok.db.queue.depth", { lane }, () => queues.reduce((depth, read) => depth + read(), 0))
      return {
        ran: (operation, seconds, error) => ranOf(operation)(error)(seconds),
        batched: (operation, size) => batchedOf(operation)(size),
        waited: histogram("byok.db.queue.wait.duration", { lane }),
        refused: counter("byok.db.refusals", { lane }),
        queue: (read) => void queues.push(read)
      }
    })
  })
)
