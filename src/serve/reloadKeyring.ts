import { Cause, Effect, Layer, Option, Queue } from "effect"
import { Keyring } from "../crypto/keyring/Keyring.ts"

const reload = Effect.gen(function* () {
  const { byId, primary } = yield* (yield* Keyring).reload
  const ids = Array.from(byId.keys()).join(", ")
  yield* Effect.logInfo(`The keyring was read again: ${primary?.id} seals; it has ${ids}`)
}).pipe(
  Effect.catchCause((cause) => {
    const failure = Option.getOrUndefined(Cause.findErrorOption(cause))
    return failure === undefined
      ? Effect.logError("The keyring stays as it was: the database does not answer", cause)
      : Effect.logError(`The keyring stays as it was. ${failure.message}`)
  })
)

/** Reads the keyring again on every SIGHUP. What is under way goes on, with the keys that it began with. */
export const reloadKeyring = (hangUps: Queue.Dequeue<true>) =>
  Layer.effectDiscard(Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(hangUps), reload))))
