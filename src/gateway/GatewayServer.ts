import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { lstatSync, renameSync, rmSync } from "node:fs"
import type { Server } from "node:http"
import { connect } from "node:net"
import { dirname, resolve } from "node:path"
import { Data, Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentPrincipal } from "../domain/Principal.ts"
import * as Envelope from "../http/Envelope.ts"
import { makeNodeServer, type ServerLimits } from "../http/makeNodeServer.ts"
import * as RequestDecodingLive from "../http/RequestDecodingLive.ts"
import { AccessLog } from "../http/traceAndLog.ts"
import { otherWriterOf } from "../runtime/otherWriter.ts"
import * as Routing from "../http/Routing.ts"
import { listen, serveRoutes, type ServerSettings } from "../http/Server.ts"
import { GatewayApi } from "../contract/GatewayApi.ts"
import * as Handlers from "./Handlers.ts"

/**
 * Serves the HTTP API of gateways on a Unix socket that only the user and group of this process may open. Fails if
 * another user could replace the socket, or another instance listens there.
 */
export const layer = (settings: ServerLimits & Pick<ServerSettings, "accessLog">, path: string) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      yield* prepareSocketPath(path)
      const server = yield* listen(makeServer(settings), { path }, "1 second").pipe(
        Effect.mapError(({ cause }) =>
          errorCode(cause) === "EADDRINUSE" ? socketInUse : refuse("must be free to listen on")
        )
      )
      yield* Effect.provideService(serveRoutes(server), CurrentPrincipal, { kind: "gateway" })
      yield* Effect.logInfo(`Gateways are served on ${path}`)
    })
  ).pipe(
    Layer.provide(routes),
    Layer.provide(Routing.layer(Routing.makeRouting(isSafe))),
    Layer.provide(NodeHttpServer.layerHttpServices),
    Layer.provide(Handlers.layer),
    Layer.provide(RequestDecodingLive.layer),
    Layer.provide(Layer.succeed(AccessLog, settings.accessLog))
  )

const routes = Layer.merge(
  HttpApiBuilder.layer(GatewayApi, { openapiPath: "/openapi.json" }),
  Layer.fresh(Envelope.layer)
)

/** Whether repeating a request does no harm: of POSTs, only those of attempts and reports. */
const isSafe = (method: string, path: string) => method !== "POST" || path === "/v1/attempts" || path === "/v1/reports"

/**
 * Requires that only this user or root can replace the socket, and removes a stale one. Renames the stale socket first
 * and checks again that nobody listens, because another instance may just have begun to.
 */
const prepareSocketPath = Effect.fnUntraced(function* (path: string) {
  if (Buffer.byteLength(path) > maxPathBytes) return yield* refuse(`must have at most ${maxPathBytes} bytes`)
  const other = yield* tryOrRefuse(
    // Gateways are in this user's group.
    () => otherWriterOf(dirname(resolve(path)), true),
    "must be in a folder that exists"
  )
  if (other !== undefined) {
    return yield* refuse("must be in a folder that, like each above it, only this user or root can write to")
  }
  const existing = yield* tryOrRefuse(
    () => lstatSync(path, { throwIfNoEntry: false }),
    "must be in a folder that this user may read"
  )
  if (existing === undefined) return
  if (!existing.isSocket()) return yield* refuse("must be a socket or not exist: a file or link is there")
  if (yield* isListening(path)) return yield* socketInUse
  const renamed = `${path}.${process.pid}`
  yield* tryOrRefuse(() => renameSync(path, renamed), "must be a socket that this user may replace")
  if (yield* isListening(renamed)) {
    yield* Effect.ignore(Effect.try(() => renameSync(renamed, path)))
    return yield* socketInUse
  }
  rmSync(renamed, { force: true })
})

/** Maximum bytes of a socket's path: macOS allows four fewer than Linux. */
const maxPathBytes = process.platform === "linux" ? 107 : 103

/** Whether a process listens on a socket. */
const isListening = (path: string) =>
  Effect.callback<boolean, SocketRefused>((resume) => {
    const socket = connect(path)
    socket.once("connect", () => resume(Effect.succeed(true)))
    socket.once("error", (error) => {
      const code = errorCode(error)
      const isStale = code === "ECONNREFUSED" || code === "ENOENT"
      resume(isStale ? Effect.succeed(false) : Effect.fail(refuse("must be a socket that this user may replace")))
    })
    return Effect.sync(() => socket.destroy())
  })

/** The socket is unusable; the message names the setting and the rule. */
class SocketRefused extends Data.TaggedError("SocketRefused")<{ readonly message: string }> {}

const refuse = (rule: string) => new SocketRefused({ message: `BYOK_GATEWAY_SOCKET ${rule}.` })

const socketInUse = refuse("must be a socket of one instance: another one listens there")

const tryOrRefuse = <A>(run: () => A, rule: string) => Effect.try({ try: run, catch: () => refuse(rule) })

const errorCode = (error: unknown): unknown => Reflect.get(Object(error) as object, "code")

/** Makes a server whose socket has mode 0660 from the start: `listen` creates it synchronously, under this umask. */
const makeServer = (limits: ServerLimits) => {
  const limited = makeNodeServer(limits)
  const { server } = limited
  const originalListen = server.listen.bind(server) as (...args: ReadonlyArray<unknown>) => Server
  server.listen = (...args: ReadonlyArray<unknown>) => {
    const usualMask = process.umask(0o117)
    try {
      return originalListen(...args)
    } finally {
      process.umask(usualMask)
    }
  }
  return limited
}
