import { Deferred, Effect, type Scope } from "effect"
import { prepare } from "./DataDirectory.ts"
import type { EmbeddedPostgresError } from "./EmbeddedPostgresError.ts"
import { locate } from "./PostgresBinaries.ts"
import { obtain } from "./Postmaster.ts"
import { socketDirectory } from "./SocketDirectory.ts"
import { supervise } from "./supervise.ts"

export interface Endpoint {
  /** The socket's directory. */
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
    // A failure is final only before it has served once.
    yield* Effect.forkScoped(supervise(serve, (cause) => Deferred.failCause(ready, cause)))
    return { host: yield* Deferred.await(ready), username: "byok", database: "postgres" }
  })
