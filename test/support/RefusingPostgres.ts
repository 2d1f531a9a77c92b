import { assert } from "@effect/vitest"
import { createServer, type Socket } from "node:net"
import { TLSSocket } from "node:tls"
import { Effect, type Scope } from "effect"

const message = (type: string, body: Buffer) => {
  const head = Buffer.alloc(5)
  head.write(type)
  head.writeInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
}

const asksForTls = (bytes: Buffer) => bytes.length === 8 && bytes.readInt32BE(4) === 80877103

const askForPassword = message("R", Buffer.from([0, 0, 0, 3]))

export interface RefusingPostgres {
  readonly port: number
  /** How often it has refused. */
  readonly refused: () => number
}

interface Place {
  readonly address?: string
  /** Without it, it declines TLS. */
  readonly tls?: { readonly key: string; readonly certificate: string }
}

/** A server that speaks PostgreSQL's protocol just far enough to ask for a password and refuse, with the given words. */
export const refusingPostgres = (
  sqlstate: string,
  words: string,
  { address = "127.0.0.1", tls }: Place = {}
): Effect.Effect<RefusingPostgres, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<RefusingPostgres & { readonly close: Effect.Effect<unknown> }>((resume) => {
        let refused = 0
        const open = new Set<Socket>()
        const fields = { S: "FATAL", V: "FATAL", C: sqlstate, M: words, D: words, H: words, s: words, n: words }
        const body = Object.entries(fields).map(([field, text]) => `${field}${text}\0`)
        const refuse = (socket: Socket) => {
          socket.on("error", () => socket.destroy())
          socket.once("data", (bytes: Buffer) => {
            if (asksForTls(bytes)) {
              socket.write(tls === undefined ? "N" : "S")
              return refuse(
                (tls && new TLSSocket(socket, { isServer: true, key: tls.key, cert: tls.certificate })) ?? socket
              )
            }
            socket.write(askForPassword)
            socket.once("data", () => {
              refused += 1
              socket.end(message("E", Buffer.from(`${body.join("")}\0`)))
            })
          })
        }
        const server = createServer((socket) => {
          open.add(socket)
          refuse(socket)
        }).listen(0, address, () => {
          const address = server.address()
          assert(typeof address === "object" && address !== null)
          const close = Effect.promise(() => {
            for (const socket of open) socket.destroy()
            return new Promise((resolve) => server.close(resolve))
          })
          resume(Effect.succeed({ port: address.port, refused: () => refused, close }))
        })
      }),
      ({ close }) => close
    ),
    ({ port, refused }) => ({ port, refused })
  )
