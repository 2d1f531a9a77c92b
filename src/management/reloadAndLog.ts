import { Cause, Effect, Option } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { type KeyringNotReloaded, KeyringReload } from "../port/KeyringReload.ts"

/** Reloads the keyring of this process, and logs what came of it. */
export const reloadAndLog = Effect.gen(function* () {
  const reloaded = yield* (yield* KeyringReload).reload
  const { kek_ids } = reloaded
  yield* Effect.logInfo(`Keyring reloaded: ${kek_ids[0]} seals; its keys are ${kek_ids.join(", ")}`)
  return reloaded
}).pipe(
  Effect.catchCause((cause): Effect.Effect<never, KeyringNotReloaded | ServiceUnavailable> => {
    const failure = Option.getOrUndefined(Cause.findErrorOption(cause))
    return failure === undefined
      ? Effect.andThen(
          Effect.logError("Keyring not reloaded: the database does not answer", cause),
          Effect.fail(new ServiceUnavailable())
        )
      : Effect.andThen(Effect.logError(`Keyring not reloaded. ${failure.message}`), Effect.fail(failure))
  })
)
