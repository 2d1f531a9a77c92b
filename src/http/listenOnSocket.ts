import { lstatSync, renameSync, rmSync } from "node:fs"
import type { Server } from "node:http"
import { connect } from "node:net"
import { dirname, resolve } from "node:path"
import { Data, Effect } from "effect"
import { otherWriterOf } from "../runtime/otherWriter.ts"
import { makeNodeServer, type ServerLimits } from "./makeNodeServer.ts"
import { makeSocketMeter } from "./RequestMeter.ts"
import { Routing } from "./Routing.ts"
import { listen, type ServerSettings } from "./Server.ts"

/** The access log of a server on a Unix socket, and the limits for its clients. */
export type SocketSettings = ServerLimits & Pick<ServerSettings, "accessLog">

/**
 * Listens on a Unix socket that only the user and group of this process may open. Fails with a sentence that names the
 * setting if another user could replace the socket, or another instance listens there.
 */
export const listenOnSocket = Effect.fnUntraced(function* (settings: ServerLimits, setting: string, path: string) {
  const refuse = (rule: string) => new SocketRefused({ message: `${setting} ${rule}.` })
  const prepared = Effect.mapError(prepareSocketPath(path), refuse)
  const measured = { meter: yield* makeSocketMeter, routing: yield* Routing }
  const listening = Effect.mapError(listen(makeServer(settings, measured), { path }, "1 second"), ({ cause }) =>
    refuse(errorCode(cause) === "EADDRINUSE" ? inUse : "must be free to listen on")
  )
  return yield* Effect.andThen(prepared, listening)
})

/** The socket is unusable; the message names the setting and the rule. */
class SocketRefused extends Data.TaggedError("SocketRefused")<{ readonly message: string }> {}

const inUse = "must be a socket of one instance: another one listens there"

/**
 * Requires that only this user or root can replace the socket, and removes a stale one. Renames the stale socket first
 * and checks again that nobody listens, because another instance may just have begun to. Fails with the rule that is broken.
 */
const prepareSocketPath = Effect.fnUntraced(function* (path: string) {
  if (Buffer.byteLength(path) > maxPathBytes) return yield* Effect.fail(`must have at most ${maxPathBytes} bytes`)
  const other = yield* tryOrRefuse(
    // Clients are in this user's group.
    () => otherWriterOf(dirname(resolve(path)), true),
    "must be in a folder that exists"
  )
  if (other !== undefined) {
    return yield* Effect.fail(
      `must be in a folder that, like each above it, only this user or root can write to: ${other.by} can write to ${other.path}`
    )
  }
  const existing = yield* tryOrRefuse(
    () => lstatSync(path, { throwIfNoEntry: false }),
    "must be in a folder that this user may read"
  )
  if (existing === undefined) return
  if (!existing.isSocket()) return yield* Effect.fail("must be a socket or not exist: a file or link is there")
  if (yield* isListening(path)) return yield* Effect.fail(inUse)
  const renamed = `${path}.${process.pid}`
  yield* tryOrRefuse(() => renameSync(path, renamed), "must be a socket that this user may replace")
  if (yield* isListening(renamed)) {
    yield* Effect.ignore(Effect.try(() => renameSync(renamed, path)))
    return yield* Effect.fail(inUse)
  }
  rmSync(renamed, { force: true })
})

/** Maximum bytes of a socket's path: macOS allows four fewer than Linux. */
const maxPathBytes = process.platform === "linux" ? 107 : 103

/** Whether a process listens on a socket. */
const isListening = (path: string) =>
  Effect.callback<boolean, string>((resume) => {
    const socket = connect(path)
    socket.once("connect", () => resume(Effect.succeed(true)))
    socket.once("error", (error) => {
      const code = errorCode(error)
      const isStale = code === "ECONNREFUSED" || code === "ENOENT"
      resume(isStale ? Effect.succeed(false) : Effect.fail("must be a socket that this user may replace"))
    })
    return Effect.sync(() => socket.destroy())
  })

const tryOrRefuse = <A>(run: () => A, rule: string) => Effect.try({ try: run, catch: () => rule })

const errorCode = (error: unknown): unknown => Reflect.get(Object(error) as object, "code")

/** Makes a server whose socket has mode 0660 from the start: `listen` creates it synchronously, under this umask. */
const makeServer = (limits: ServerLimits, measured: Parameters<typeof makeNodeServer>[2]) => {
  const limited = makeNodeServer(limits, undefined, measured)
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
