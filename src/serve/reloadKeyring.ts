import { Effect, Layer, Queue } from "effect"
import { reloadAndLog } from "../management/reloadAndLog.ts"

/** Reloads the keyring on every SIGHUP. Requests in progress finish with the keys they began with. */
export const reloadKeyring = (sighups: Queue.Dequeue<true>) =>
  Layer.effectDiscard(
    Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(sighups), Effect.ignore(reloadAndLog))))
  )
