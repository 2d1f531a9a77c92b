import { Effect, type Scope } from "effect"
import { listen } from "./listen.ts"
import { message } from "./postgresMessage.ts"

const askForPassword = message("R", Buffer.from([0, 0, 0, 3]))

export interface RefusingPostgres {
  readonly port: number
  /** How often it has refused. */
  readonly refused: () => number
}

/** A server that speaks PostgreSQL's protocol just far enough to ask for a password and refuse, with the given words. */
export const refusingPostgres = (
  sqlstate: string,
  words: string
): Effect.Effect<RefusingPostgres, never, Scope.Scope> => {
  let refused = 0
  const fields = { S: "FATAL", V: "FATAL", C: sqlstate, M: words, D: words, H: words, s: words, n: words }
  const body = Object.entries(fields).map(([field, text]) => `${field}${text}\0`)
  const serving = listen((socket) => {
    socket.once("data", () => {
      socket.write(askForPassword)
      socket.once("data", () => {
        refused += 1
        socket.end(message("E", Buffer.from(`${body.join("")}\0`)))
      })
    })
  })
  return Effect.map(serving, (port) => ({ port, refused: () => refused }))
}
