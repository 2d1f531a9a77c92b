import { Cause, Effect, Layer, Option, Queue } from "effect"
import { KeyringReload } from "../port/KeyringReload.ts"

const reload = Effect.gen(function* () {
  const { kek_ids } = yield* (yield* KeyringReload).reload
  yield* Effect.logInfo(`The keyring was read again: ${kek_ids[0]} seals; it has ${kek_ids.join(", ")}`)
}).pipe(
  Effect.catchCause((cause) => {
    const failure = Option.getOrUndefined(Cause.findErrorOption(cause))
    return failure === undefined
      ? Effect.logError("The keyring stays as it was: the database does not answer", cause)
      : Effect.logError(`The keyring stays as it was. ${failure.message}`)
  })
)

/** Reads the keyring again on every SIGHUP. Requests in progress finish with the keys they began with. */
export const reloadKeyring = (sighups: Queue.Dequeue<true>) =>
  Layer.effectDiscard(Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(sighups), reload))))
