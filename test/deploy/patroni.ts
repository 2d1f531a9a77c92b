import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import { Effect } from "effect"
import { freePort } from "../drill/Bed.ts"
import { installedPostgres } from "../drill/installedPostgres.ts"
import { localPatroni } from "../support/database/localPatroni.ts"
import { installedPrograms, programVariables } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import type { Check } from "./Check.ts"
import { problemsOf } from "./problemsOf.ts"

/** Patroni wants to see that something listens where etcd is. */
const listening = Effect.acquireRelease(
  Effect.callback<{ readonly port: number; readonly close: () => void }>((resume) => {
    const server = createServer((socket) => socket.destroy()).listen(0, "127.0.0.1", () => {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      resume(Effect.succeed({ port, close: () => server.close() }))
    })
  }),
  ({ close }) => Effect.sync(close)
)

export const patroni: Check = {
  piece: "postgresql/patroni.yml",
  run: (deploy) =>
    Effect.gen(function* () {
      const { patroni } = yield* installedPrograms(["patroni"])
      const programs = yield* installedPostgres(["initdb", "postgres", "pg_ctl", "pg_basebackup", "pg_rewind"])
      const directory = yield* temporaryDirectory
      const [postgres, rest, pooler] = yield* Effect.all([freePort, freePort, freePort])
      const data = join(directory, "data")
      mkdirSync(data)
      const file = join(directory, "patroni.yml")
      const example = readFileSync(join(deploy, "postgresql/patroni.yml"), "utf8")
      const { port: etcd } = yield* listening
      const node = { name: "one", data, postgres, rest, pooler }
      // Its validator knows 127.0.0.1 as an address that no other node can reach.
      const local = localPatroni(example, node, { directory, etcd, programs })
      writeFileSync(file, local.replaceAll('"connect_address":"127.0.0.1', '"connect_address":"127.0.0.2'))
      const variables = programVariables()
      return { problems: problemsOf(yield* runProgram(patroni, ["--validate-config", file], { variables })) }
    }),
  mistakes: [
    { file: "postgresql/patroni.yml", text: "ttl: 20", instead: "ttl: soon" },
    { file: "postgresql/patroni.yml", text: "scope: byok", instead: "scopes: byok" }
  ]
}
