import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Context, DateTime, Duration, Effect, Fiber, Layer, Option, Redacted } from "effect"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { LeakedKeys } from "../../src/port/LeakedKeys.ts"
import { type CitusCluster, distribute, logOf, newCitusCluster, postgresWithCitus } from "../drill/CitusCluster.ts"
import { adminClient } from "../support/database/freshDatabase.ts"
import { holdOpen, lockTable, untilWaiting } from "../support/database/transactions.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { assert, describe, layerLive } from "../support/it.ts"
import { eventually } from "../support/process/eventually.ts"
import { runByok } from "../support/process/runByok.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { usePorts } from "./usePorts.ts"

const why = Effect.runSync(Effect.match(postgresWithCitus, { onSuccess: () => undefined, onFailure: ({ why }) => why }))

const [, wayBack = ""] =
  /^To go back, .*?^```sql\n(.*?)^```/ms.exec(
    readFileSync(join(import.meta.dirname, "../../docs/scaling.md"), "utf8")
  ) ?? []

/** The coordinator logs the plan of each statement as it was run. */
const explaining = {
  shared_preload_libraries: "citus,auto_explain",
  "auto_explain.log_min_duration": "0",
  "auto_explain.log_format": "json",
  logging_collector: "on",
  log_destination: "jsonlog",
  log_filename: "server.log"
}

/** A statement on distributed tables as it was run: how many shards each of its parts asks. */
interface Run {
  readonly text: string
  readonly tasks: ReadonlyArray<number>
  /** Whether the coordinator reads its rows and sends them to every node. */
  readonly pulled: boolean
}

const runsIn = (log: string): ReadonlyArray<Run> =>
  log.split("\n").flatMap((line) => {
    const { message = "" } = line === "" ? {} : (JSON.parse(line) as { readonly message?: string })
    const [, plan] = /^duration: \S+ ms {2}plan:\n(.*)$/s.exec(message) ?? []
    if (plan === undefined) return []
    const { "Query Text": text = "" } = JSON.parse(plan) as { readonly "Query Text"?: string }
    const tasks = Array.from(plan.matchAll(/"Task Count": (\d+)/g), ([, count]) => Number(count))
    return tasks.length === 0 ? [] : [{ text, tasks, pulled: plan.includes("INSERT/SELECT method") }]
  })

/** Statements that no request runs: for many accounts, or for commands of operators. */
const ofNoRequest: Readonly<Record<string, RegExp>> = {
  "the keys that credentials name": /SELECT min\(kek_id\)/,
  "credentials that name a key": /FROM credentials\s+WHERE kek_id (BETWEEN \$|= (ANY\()?\$)/,
  "a rewrap": /\(account_id, id\) > \(.* kek_id <> |UPDATE credentials AS target SET kek_id|OFFSET \$3 LIMIT 1$/s,
  "a search for a leaked key":
    /WITH read AS|AS key \("account_id","credential_id","key_version", n\)|AS count FROM credentials$/,
  "old idempotency records": /DELETE FROM idempotency_records WHERE true/,
  "what parkings of many accounts change": /JOIN unnest\(\$1::uuid\[\],\$2::uuid\[\]\) WITH ORDINALITY AS wanted/,
  "parkings and uses of many accounts": /(INTO|FROM) credential_(parkings|use) AS \w+\s+(\(|USING)/,
  "a workspace by its id": /workspaces (SET deleted_at = \$1\s+)?WHERE id =/,
  accounts: /FROM accounts\s+(WHERE id > \$1 ORDER|LIMIT)|INSERT INTO api_keys/
}

/** A cluster whose tables are not distributed yet. */
class Citus extends Context.Service<Citus, CitusCluster>()("byok/test/Citus") {
  static readonly layer = Layer.effect(this, Effect.orDie(newCitusCluster(explaining)))
}

/** A service on a cluster, that waits long for a lock. */
const serviceOn = ({ coordinator }: CitusCluster) =>
  TestService.layerWith({
    settings: (given) => ({
      ...given,
      databaseUrl: Option.some(Redacted.make(coordinator.url)),
      keyring: Option.some(Redacted.make(ringOf("kek"))),
      database: { ...given.database, deadline: Duration.seconds(30), statementTimeout: Duration.seconds(30) }
    })
  })

describe.skipIf(why !== undefined)(
  `tables distributed by Citus${why === undefined ? "" : ` (skipped: ${why})`}`,
  () => {
    layerLive(Citus.layer, { timeout: "2 minutes" })((it) => {
      it.effect(
        "byok migrate --distribute names missing preconditions, and resumes after an interruption",
        function* () {
          const { coordinator, workers } = yield* Citus
          const { query, socket, url: DATABASE_URL } = coordinator
          const migrate = ["migrate", "--distribute"]
          const refused = (sentence: string) => ({ code: 1, stdout: "", stderr: `${sentence}\n` })
          const lacking = (what: string) => refused(`DATABASE_URL cannot be distributed: ${what}; see docs/scaling.md.`)
          for (const worker of workers) yield* query(`SELECT citus_remove_node('${worker.socket}', 5432)`)
          const workerless = lacking("Citus has no worker: call citus_add_node")
          assert.deepStrictEqual(yield* runCommand(migrate, { DATABASE_URL }), workerless)
          yield* query(`SELECT citus_remove_node('${socket}', 5432)`)
          const unknown = lacking("Citus was not told its host: call citus_set_coordinator_host")
          assert.deepStrictEqual(yield* runCommand(migrate, { DATABASE_URL }), unknown)
          yield* query(`SELECT citus_set_coordinator_host('${socket}', 5432)`)
          for (const worker of workers) yield* query(`SELECT citus_add_node('${worker.socket}', 5432)`)

          const sql = yield* adminClient(DATABASE_URL)
          const release = yield* lockTable(sql, "idempotency_records")
          const interrupted = yield* Effect.forkChild(runByok(migrate, { DATABASE_URL }))
          yield* untilWaiting(sql, 1)
          yield* Fiber.interrupt(interrupted)
          assert.deepStrictEqual(
            yield* runCommand(["account", "list"], { DATABASE_URL }),
            refused("DATABASE_URL: distributing its tables was interrupted: run `byok migrate --distribute` again.")
          )
          yield* release
          for (const line of [
            "Distributed: idempotency_records, credential_parkings, credential_use, audit_entries",
            "All tables were distributed before."
          ]) {
            const stdout = `The database is up to date.\n${line}\n`
            assert.deepStrictEqual(yield* runCommand(migrate, { DATABASE_URL }), { code: 0, stdout, stderr: "" })
          }
        }
      )

      it.effect("every SQL statement of a request runs on one node, and those on many accounts work", function* () {
        const cluster = yield* Citus
        yield* distribute(cluster)
        yield* Effect.gen(function* () {
          yield* usePorts
          const tenant = yield* TestService.newTenant
          const id = createdId(yield* tenant.create(minimal))
          const planned = yield* tenant.plan({ model: "a/b", targets: [{ provider: minimal.provider }] })
          assert.include(planned.body, id)
          assert.include((yield* tenant.list("?state=active&q=sk-")).body, id)
          yield* tenant.get(id)
        }).pipe(Effect.provide(serviceOn(cluster)))
        const planted = "SELECT label FROM credentials WHERE kek_id = 'planted'"
        yield* cluster.coordinator.query(planted)
        // The server's collector writes its log a moment later.
        yield* eventually("the planted statement is logged", () => logOf(cluster.coordinator).includes(planted))
        const runs = runsIn(logOf(cluster.coordinator))
        const patterns = Object.values(ofNoRequest)
        const astray = runs.filter(
          ({ pulled, tasks, text }) =>
            text !== "" && (pulled || tasks.some((count) => count !== 1)) && !patterns.some((each) => each.test(text))
        )
        assert.deepStrictEqual(
          astray.map(({ text }) => text),
          [planted]
        )
        for (const [name, pattern] of Object.entries(ofNoRequest)) {
          assert.isTrue(
            runs.some(({ text }) => pattern.test(text)),
            name
          )
        }
      })

      it.effect(
        "migrate restores every foreign key after undistributing by docs/scaling.md, even if interrupted before",
        function* () {
          const cluster = yield* Citus
          yield* distribute(cluster)
          const { query, url: DATABASE_URL } = cluster.coordinator
          const sql = yield* adminClient(DATABASE_URL)
          const keys = sql`
            SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
            WHERE contype = 'f' AND connamespace = 'public'::regnamespace ORDER BY conname`
          const ran = (stdout: string) => ({ code: 0, stdout: `The database is up to date.\n${stdout}`, stderr: "" })
          const restored = (...names: ReadonlyArray<string>) => ran(`Restored the foreign keys ${names.join(", ")}\n`)
          const ofKeys = "api_keys_account_id_fkey"

          yield* query(wayBack)
          assert.deepStrictEqual(
            yield* runCommand(["migrate"], { DATABASE_URL }),
            restored(ofKeys, "links_account_id_fkey")
          )
          const before = yield* keys
          assert.lengthOf(before, 7)

          const release = yield* lockTable(sql, "idempotency_records")
          const interrupted = yield* Effect.forkChild(runByok(["migrate", "--distribute"], { DATABASE_URL }))
          yield* untilWaiting(sql, 1)
          yield* Fiber.interrupt(interrupted)
          yield* release
          yield* query(wayBack)
          const { code, stderr } = yield* runCommand(["account", "list"], { DATABASE_URL })
          assert.strictEqual(code, 1)
          assert.match(stderr, /^DATABASE_URL: foreign keys are missing, as after the way back/)
          const names = before.map(({ conname }) => String(conname))
          const { stdout } = yield* runCommand(["migrate"], { DATABASE_URL })
          for (const name of names) assert.include(stdout, name)
          assert.deepStrictEqual(yield* keys, before)
          assert.deepStrictEqual(yield* runCommand(["migrate"], { DATABASE_URL }), ran(""))
          assert.strictEqual((yield* runCommand(["account", "list"], { DATABASE_URL })).code, 0)
        }
      )

      it.effect("a leak search that parks keys of many accounts raises each pool's health version (L16)", function* () {
        const cluster = yield* Citus
        yield* distribute(cluster)
        const sql = yield* adminClient(cluster.coordinator.url)
        yield* Effect.gen(function* () {
          const [one, other] = [yield* TestService.newTenant, yield* TestService.newTenant]
          const keys = yield* Effect.forEach([one, other], ({ account_id, create, workspace_id }) =>
            Effect.map(create(minimal), (created) => ({
              account_id,
              workspace_id,
              credential_id: CredentialId.make(createdId(created)),
              key_version: 1
            }))
          )
          const healthOf = Effect.forEach(keys, ({ account_id }) =>
            Effect.map(sql<{ health: string }>`SELECT health FROM pools WHERE account_id = ${account_id}`, ([pool]) =>
              Number(pool?.health)
            )
          )
          const before = yield* healthOf
          const { conclude } = yield* LeakedKeys
          assert.deepStrictEqual(yield* conclude({ keys, searched: 2, park: true }), [true, true])
          assert.deepStrictEqual(
            yield* healthOf,
            before.map((health) => health + 1)
          )
        }).pipe(Effect.provide(serviceOn(cluster)))
      })

      it.effect("an API key issued during the erasure of its account is erased too", function* () {
        const cluster = yield* Citus
        yield* distribute(cluster)
        const sql = yield* adminClient(cluster.coordinator.url)
        const keys = (account_id: string) => sql`SELECT 1 FROM api_keys WHERE account_id = ${account_id}`
        yield* Effect.gen(function* () {
          const { account_id, ordinaryKey } = yield* TestService.newTenant
          const release = yield* holdOpen(sql, "LOCK TABLE audit_entries IN EXCLUSIVE MODE")
          const issuing = yield* Effect.forkChild(ordinaryKey)
          yield* untilWaiting(sql, 1)
          const { eraseAccount } = yield* AccountRepository
          const erasing = yield* Effect.forkChild(eraseAccount(account_id, yield* DateTime.now, 100))
          yield* untilWaiting(sql, 2)
          yield* release
          yield* Fiber.join(issuing)
          assert.isTrue(Option.getOrThrow(yield* Fiber.join(erasing)).done)
          assert.lengthOf(yield* keys(account_id), 0)
        }).pipe(Effect.provide(serviceOn(cluster)))
      })
    })
  }
)
