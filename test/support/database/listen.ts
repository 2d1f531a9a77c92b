import { createServer, type Socket } from "node:net"
import { assert } from "@effect/vitest"
import { Effect } from "effect"

/** The port of a server that listens until the scope closes, which cuts its connections; `serve` gets each of them. */
export const listen = (serve: (socket: Socket) => void, host = "127.0.0.1") =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<{ readonly port: number; readonly close: Effect.Effect<unknown> }>((resume) => {
        const open = new Set<Socket>()
        const server = createServer((socket) => {
          open.add(socket.on("error", () => socket.destroy()).on("close", () => open.delete(socket)))
          serve(socket)
        }).listen(0, host, () => {
          const address = server.address()
          assert(typeof address === "object" && address !== null)
          const close = Effect.promise(() => {
            for (const socket of open) socket.destroy()
            return new Promise((done) => server.close(done))
          })
          resume(Effect.succeed({ port: address.port, close }))
        })
      }),
      ({ close }) => close
    ),
    ({ port }) => port
  )
