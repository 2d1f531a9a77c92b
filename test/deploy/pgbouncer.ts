import { chownSync, readFileSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import { Effect } from "effect"
import { postgresUser } from "../../src/sql/embedded/PostgresBinaries.ts"
import { run } from "../support/process/ChildProcess.ts"
import { freePort } from "../drill/Bed.ts"
import { ownDirectory } from "../drill/Cluster.ts"
import { localPgBouncer } from "../support/database/localPgBouncer.ts"
import { eventually } from "../support/process/eventually.ts"
import { installedPrograms, programVariables } from "../support/process/installedPrograms.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import type { Check } from "./Check.ts"

const accepts = (port: number) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect(port, "127.0.0.1")
    socket.once("connect", () => resume(Effect.succeed(true))).once("error", () => resume(Effect.succeed(false)))
    return Effect.sync(() => socket.destroy())
  })

/** PgBouncer has no command that checks a file, so it is started; it refuses what it does not know. */
export const pgbouncer: Check = {
  piece: "postgresql/pgbouncer.ini",
  run: (deploy) =>
    Effect.gen(function* () {
      const { pgbouncer } = yield* installedPrograms(["pgbouncer"])
      const directory = ownDirectory(join(yield* temporaryDirectory, "pgbouncer"))
      const [postgres, rest, pooler] = yield* Effect.all([freePort, freePort, freePort])
      const node = { name: "one", data: directory, postgres, rest, pooler }
      const writeOwn = (name: string, text: string) => {
        const path = join(directory, name)
        writeFileSync(path, text)
        if (postgresUser !== undefined) chownSync(path, postgresUser.uid, postgresUser.gid)
        return path
      }
      const example = readFileSync(join(deploy, "postgresql/pgbouncer.ini"), "utf8")
      const users = writeOwn("users", `"byok" ""\n`)
      const file = writeOwn("pgbouncer.ini", localPgBouncer(example, node, users))
      const { exitCode, lastWords } = yield* run(pgbouncer, [file], programVariables())
      yield* eventually(
        "PgBouncer listens or ends",
        Effect.gen(function* () {
          return exitCode() !== undefined || (yield* accepts(pooler))
        })
      )
      const refused = lastWords()
        .split("\n")
        .filter((line) => /ERROR|FATAL/.test(line))
      return { problems: exitCode() === undefined ? refused : [...refused, `it ends with exit code ${exitCode()}`] }
    }),
  mistakes: [
    { file: "postgresql/pgbouncer.ini", text: "pool_mode = transaction", instead: "pool_mod = transaction" },
    { file: "postgresql/pgbouncer.ini", text: "pool_mode = transaction", instead: "pool_mode = transactions" }
  ]
}
