import type { Socket } from "node:net"
import { TLSSocket } from "node:tls"
import { Effect, type Scope } from "effect"
import { listen } from "./listen.ts"

/** A message of PostgreSQL's protocol: its type, its length and what it says. */
export const postgresMessage = (type: string, body: Buffer) => {
  const head = Buffer.alloc(5)
  head.write(type)
  head.writeInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
}

const asksForTls = (bytes: Buffer) => bytes.length === 8 && bytes.readInt32BE(4) === 80877103

const askForPassword = postgresMessage("R", Buffer.from([0, 0, 0, 3]))

export interface RefusingPostgres {
  readonly port: number
  /** How often it has refused. */
  readonly refused: () => number
}

interface Place {
  readonly address?: string
  /** Undefined to decline TLS. */
  readonly tls?: { readonly key: string; readonly certificate: string }
}

/** A server that speaks PostgreSQL's protocol just far enough to ask for a password and refuse, with the given words. */
export const refusingPostgres = (
  sqlstate: string,
  words: string,
  { address = "127.0.0.1", tls }: Place = {}
): Effect.Effect<RefusingPostgres, never, Scope.Scope> => {
  let refused = 0
  const fields = { S: "FATAL", V: "FATAL", C: sqlstate, M: words, D: words, H: words, s: words, n: words }
  const body = Object.entries(fields).map(([field, text]) => `${field}${text}\0`)
  const refuse = (socket: Socket) => {
    socket.on("error", () => socket.destroy())
    socket.once("data", (bytes: Buffer) => {
      if (asksForTls(bytes)) {
        socket.write(tls === undefined ? "N" : "S")
        return refuse((tls && new TLSSocket(socket, { isServer: true, key: tls.key, cert: tls.certificate })) ?? socket)
      }
      socket.write(askForPassword)
      socket.once("data", () => {
        refused += 1
        socket.end(postgresMessage("E", Buffer.from(`${body.join("")}\0`)))
      })
    })
  }
  return Effect.map(listen(refuse, address), (port) => ({ port, refused: () => refused }))
}
