import { type AddressInfo, createServer, type Server, type Socket } from "node:net"
import { Effect } from "effect"

/** The port of a server, also of HTTP, that listens until the scope closes, which cuts its connections. */
export const listening = (server: Server, host = "127.0.0.1") =>
  Effect.acquireRelease(
    Effect.callback<{ readonly port: number; readonly close: Effect.Effect<unknown> }>((resume) => {
      const open = new Set<Socket>()
      server.on("connection", (socket) => {
        open.add(socket.on("error", () => socket.destroy()).on("close", () => open.delete(socket)))
      })
      server.listen(0, host, () => {
        const close = Effect.promise(() => {
          for (const socket of open) socket.destroy()
          return new Promise((done) => server.close(done))
        })
        resume(Effect.succeed({ port: (server.address() as AddressInfo).port, close }))
      })
    }),
    ({ close }) => close
  ).pipe(Effect.map(({ port }) => port))

/** The port of a server that gives each connection to `serve`, until the scope closes. */
export const listen = (serve: (socket: Socket) => void, host?: string) =>
  Effect.suspend(() => listening(createServer(serve), host))

/** How many connections a server has. */
export const connectionsOf = (server: Server) =>
  Effect.callback<number>((resume) => {
    server.getConnections((_error, count) => resume(Effect.succeed(count)))
  })

/** A port on which nobody listens. */
export const freePort = Effect.scoped(listen(() => undefined))
