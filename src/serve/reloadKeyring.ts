import { Cause, Effect, Layer, Option, Queue } from "effect"
import { KeyringReload } from "../port/KeyringReload.ts"

const reload = Effect.gen(function* () {
  const { kek_ids } = yield* (yield* KeyringReload).reload
  yield* Effect.logInfo(`Keyring reloaded: ${kek_ids[0]} seals; its keys are ${kek_ids.join(", ")}`)
}).pipe(
  Effect.catchCause((cause) => {
    const failure = Option.getOrUndefined(Cause.findErrorOption(cause))
    return failure === undefined
      ? Effect.logError("Keyring not reloaded: the database does not answer", cause)
      : Effect.logError(`Keyring not reloaded. ${failure.message}`)
  })
)

/** Reloads the keyring on every SIGHUP. Requests in progress finish with the keys they began with. */
export const reloadKeyring = (sighups: Queue.Dequeue<true>) =>
  Layer.effectDiscard(Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(sighups), reload))))
