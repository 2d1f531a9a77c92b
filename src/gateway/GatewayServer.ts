import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { lstatSync, realpathSync, renameSync, rmSync, type Stats, statSync } from "node:fs"
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
import * as Routing from "../http/Routing.ts"
import { listen, serveRoutes, type ServerSettings } from "../http/Server.ts"
import { GatewayApi } from "../contract/GatewayApi.ts"
import * as Handlers from "./Handlers.ts"

/** The socket is unusable; the message names the setting and the rule. */
class SocketRefused extends Data.TaggedError("SocketRefused")<{ readonly message: string }> {}

const refuse = (why: string) => new SocketRefused({ message: `BYOK_GATEWAY_SOCKET ${why}.` })

/** Maximum bytes of a socket's path: macOS allows four fewer than Linux. */
const maxPath = process.platform === "linux" ? 107 : 103

const codeOf = (error: unknown): unknown => Reflect.get(Object(error) as object, "code")

/** Whether a process listens on a socket. */
const isAlive = (path: string) =>
  Effect.callback<boolean, SocketRefused>((resume) => {
    const socket = connect(path)
    socket.once("connect", () => resume(Effect.succeed(true)))
    socket.once("error", (error) => {
      const code = codeOf(error)
      const isGone = code === "ECONNREFUSED" || code === "ENOENT"
      resume(isGone ? Effect.succeed(false) : Effect.fail(refuse("must be a socket that this user may replace")))
    })
    return Effect.sync(() => socket.destroy())
  })

const attempt = <A>(run: () => A, why: (code: unknown) => string) =>
  Effect.try({ try: run, catch: (error) => refuse(why(codeOf(error))) })

const inUse = refuse("must be a socket of one instance: another one listens there")

/** A folder and its ancestors; `isParent` marks the folder itself. */
const foldersFrom = (folder: string): ReadonlyArray<{ readonly stats: Stats; readonly isParent: boolean }> => {
  const stats = statSync(folder)
  const above = dirname(folder)
  const others = above === folder ? [] : foldersFrom(above).map((each) => ({ ...each, isParent: false }))
  return [{ stats, isParent: true }, ...others]
}

/** Whether another user could replace an entry of the folder. Above the socket's folder, the sticky bit prevents that. */
const isOpenToOthers = ({ isParent, stats: { mode, uid } }: ReturnType<typeof foldersFrom>[number]) =>
  (uid !== 0 && uid !== process.geteuid?.()) || ((mode & 0o022) !== 0 && (isParent || (mode & 0o1000) === 0))

/** Removes a stale socket. Renames it first and checks again: another instance may just have begun to listen. */
const prepare = Effect.fnUntraced(function* (path: string) {
  if (Buffer.byteLength(path) > maxPath) return yield* refuse(`must have at most ${maxPath} bytes`)
  const folder = dirname(resolve(path))
  const [written, real] = yield* attempt(
    () => [foldersFrom(folder), foldersFrom(realpathSync(folder))] as const,
    () => "must be in a folder that exists"
  )
  if ([...written, ...real].some(isOpenToOthers)) {
    return yield* refuse("must be in a folder that, like each above it, only this user or root can write to")
  }
  const existing = yield* attempt(
    () => lstatSync(path, { throwIfNoEntry: false }),
    () => "must be in a folder that this user may read"
  )
  if (existing === undefined) return
  if (!existing.isSocket()) return yield* refuse("must be a socket or not exist: a file or link is there")
  if (yield* isAlive(path)) return yield* inUse
  const aside = `${path}.${process.pid}`
  yield* attempt(
    () => renameSync(path, aside),
    () => "must be a socket that this user may replace"
  )
  if (yield* isAlive(aside)) {
    yield* Effect.ignore(Effect.try(() => renameSync(aside, path)))
    return yield* inUse
  }
  rmSync(aside, { force: true })
})

/** `listen` creates the socket synchronously, so the umask gives it mode 0660 from the start. */
const makeServer = (...args: Parameters<typeof makeNodeServer>) => {
  const server = makeNodeServer(...args)
  const listen = server.listen.bind(server) as (...args: ReadonlyArray<unknown>) => Server
  server.listen = (...args: ReadonlyArray<unknown>) => {
    const before = process.umask(0o117)
    try {
      return listen(...args)
    } finally {
      process.umask(before)
    }
  }
  return server
}

/** Whether repeating a request does no harm. */
const isSafe = (method: string, path: string) => method !== "POST" || path.startsWith("/v1/routes")

const makeGatewayRouting = () => Routing.makeRouting(isSafe)

const routes = Layer.merge(
  HttpApiBuilder.layer(GatewayApi, { openapiPath: "/openapi.json" }),
  Layer.fresh(Envelope.layer)
)

/** Serves gateways on a Unix socket that only the user and group of this process may open. */
export const layer = (settings: ServerLimits & Pick<ServerSettings, "accessLog">, path: string) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      yield* prepare(path)
      const server = yield* listen(() => makeServer(settings), { path, gracefulShutdownTimeout: "1 second" }).pipe(
        Effect.mapError(({ cause }) => (codeOf(cause) === "EADDRINUSE" ? inUse : refuse("must be free to listen on")))
      )
      yield* Effect.provideService(serveRoutes(server), CurrentPrincipal, { kind: "gateway" })
      yield* Effect.logInfo(`Gateways are served on ${path}`)
    })
  ).pipe(
    Layer.provide(routes),
    Layer.provide(Routing.layer(makeGatewayRouting())),
    Layer.provide(NodeHttpServer.layerHttpServices),
    Layer.provide(Handlers.layer),
    Layer.provide(RequestDecodingLive.layer),
    Layer.provide(Layer.succeed(AccessLog, settings.accessLog))
  )
