import { Deferred, Effect, type Scope } from "effect"
import { prepare } from "./DataDirectory.ts"
import type { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"
import { pause } from "./Pause.ts"
import { locate } from "./PostgresBinaries.ts"
import { obtain } from "./Postmaster.ts"
import { socketDirectory } from "./SocketDirectory.ts"

export interface Endpoint {
  /** The directory of the socket. */
  readonly host: string
  readonly username: "byok"
  readonly database: "postgres"
}

/** Ensures that a postmaster serves `directory` until the scope closes. */
export const start: (directory: string) => Effect.Effect<Endpoint, EmbeddedPostgresError, Scope.Scope> =
  Effect.fnUntraced(function* (directory) {
    const binaries = yield* locate()
    const data = yield* prepare(directory, binaries)
    const ready = yield* Deferred.make<string, EmbeddedPostgresError>()
    const serve = Effect.gen(function* () {
      const socket = yield* socketDirectory(data.root)
      const { gone } = yield* obtain(data, socket, binaries)
      yield* Deferred.succeed(ready, socket)
      yield* gone
    }).pipe(Effect.scoped)
    yield* supervise(serve).pipe(
      Effect.catchCause((cause) => Deferred.failCause(ready, cause)),
      Effect.forkScoped
    )
    return { host: yield* Deferred.await(ready), username: "byok", database: "postgres" }
  })

/** Serves again whenever it ended, ever more slowly if it never lasts; only the first time may fail. */
const supervise = Effect.fnUntraced(function* <E extends Error>(serve: Effect.Effect<void, E>) {
  const served = Effect.andThen(serve, Effect.logWarning("The embedded PostgreSQL has gone away and is started again"))
  yield* served
  for (let delay = 0; ;) {
    yield* pause(delay, { ref: false })
    const began = Date.now()
    yield* Effect.catch(served, (error) => Effect.logWarning(error.message))
    delay = Date.now() - began > 10_000 ? 0 : Math.min(delay * 2 + 100, 5_000)
  }
})
