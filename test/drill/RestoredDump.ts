import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { runByok } from "../support/process/runByok.ts"
import { runProgram } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { checked } from "./Bed.ts"
import { newCluster } from "./Cluster.ts"
import { installedPostgres } from "./installedPostgres.ts"
import type { Findings, Row } from "./Row.ts"
import { newClusterBed, underLoad } from "./underLoad.ts"

const installed = Effect.map(installedPostgres(["initdb", "postgres", "pg_dump", "pg_restore"]), (directory) => ({
  initdb: join(directory, "initdb"),
  postgres: join(directory, "postgres"),
  dump: join(directory, "pg_dump"),
  restore: join(directory, "pg_restore")
}))

const succeed = (program: string, args: ReadonlyArray<string>) =>
  Effect.flatMap(runProgram(program, args), ({ code, stderr }) =>
    code === 0 ? Effect.void : Effect.die(new Error(`${program}: ${stderr}`))
  )

const run = Effect.fnUntraced(function* (findings: Findings) {
  const programs = yield* installed
  const { bed, cluster } = yield* newClusterBed({ binaries: programs })
  yield* underLoad({ findings, bed }, function* () {})
  const file = join(yield* temporaryDirectory, "dump")
  yield* succeed(programs.dump, ["-h", cluster.socket, "-U", "byok", "-Fc", "-f", file, "postgres"])
  yield* cluster.kill

  const elsewhere = yield* newCluster({ binaries: programs })
  yield* elsewhere.start()
  yield* succeed(programs.restore, ["-h", elsewhere.socket, "-U", "byok", "-d", "postgres", "--exit-on-error", file])
  const DATABASE_URL = elsewhere.url
  findings.judge(yield* checked(bed, findings.ledger, { DATABASE_URL }))

  const keyring = readFileSync(bed.settings["BYOK_KEYRING_FILE"] ?? "", "utf8")
  const wrong = join(yield* temporaryDirectory, "keyring")
  writeFileSync(wrong, keyring.replace(/:.*/, `:${Buffer.alloc(32, "wrong").toString("base64")}`), { mode: 0o600 })
  const refused = yield* runByok(["serve"], { ...bed.settings, DATABASE_URL, BYOK_KEYRING_FILE: wrong })
  findings.show(`with a wrong keyring: exit code ${refused.code}, ${refused.stderr.trim()}`)
  findings.expect(refused.code === 1 && refused.stderr.startsWith("BYOK_KEYRING_FILE: "), "a wrong keyring is let in")
})

export const rows: ReadonlyArray<Row> = [
  { id: "R15", fault: "dumped with pg_dump, the server destroyed, restored on another one", run }
]
