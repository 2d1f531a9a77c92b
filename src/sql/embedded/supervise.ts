import { Cause, Effect, Exit, Option } from "effect"
import type { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"
import { pause } from "./Postmaster.ts"

/** Runs `serve` again whenever it ends, backing off if it does not last, until a failure is `final`. */
export const supervise = Effect.fnUntraced(function* (
  serve: Effect.Effect<void, EmbeddedPostgresError>,
  final: (cause: Cause.Cause<EmbeddedPostgresError>) => Effect.Effect<boolean>
) {
  for (let delay = 0; ; yield* pause(delay, { ref: false })) {
    const began = Date.now()
    const exit = yield* Effect.exit(serve)
    if (Exit.isFailure(exit) && (yield* final(exit.cause))) return
    yield* Exit.match(exit, { onFailure: logFailure, onSuccess: () => Effect.logWarning(gone) })
    delay = Date.now() - began > 10_000 ? 0 : Math.min(delay * 2 + 100, 5_000)
  }
})

const gone = "The embedded PostgreSQL has exited and is being restarted"

const logFailure = (cause: Cause.Cause<EmbeddedPostgresError>) =>
  Option.match(Cause.findErrorOption(cause), {
    onNone: () => Effect.logError("The embedded PostgreSQL has failed and is being restarted", cause),
    onSome: ({ message }) => Effect.logWarning(message)
  })
