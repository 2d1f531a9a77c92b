import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Option, Redacted } from "effect"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { PgClient } from "@effect/sql-pg"
import { Reactivity } from "effect/reactivity"
import * as Byok from "../../src/Byok.ts"
import { AccountId } from "../../src/domain/AccountId.ts"
import { CredentialId } from "../../src/domain/CredentialId.ts"
import { Cipher } from "../../src/service/Cipher.ts"
import { CredentialRepository } from "../../src/service/CredentialRepository.ts"
import { getOver } from "../support/callByok.ts"
import { eventually } from "../support/eventually.ts"
import { newDirectory, startFirst } from "../support/firstStart.ts"
import { settingsFor } from "../support/freshDatabase.ts"
import { postmasterOf, startService } from "../support/ServiceProcess.ts"
import { faultsOf, type Ledger, load, newLedger } from "./AckChecker.ts"

/** How often the service is killed. */
const kills = 3

/** How many acknowledgements make a load. */
const enough = 150

const untilAcked = (ledger: Ledger, more: number) => {
  const before = ledger.acked.length
  return eventually(
    `${more} more are acknowledged`,
    Effect.sync(() => ledger.acked.length >= before + more)
  )
}

const firstStart = Effect.gen(function* () {
  const settings = yield* newDirectory
  const { key } = yield* Effect.scoped(startFirst(settings))
  return { settings, key }
})

type Started = Effect.Success<typeof firstStart>

const database = ({ settings }: Started) =>
  Effect.provide(
    PgClient.make({ host: join(settings.BYOK_DATA_DIR, "socket"), username: "byok", database: "postgres" }),
    Reactivity.layer
  )

/** Starts the service once more, reads everything that there is, opens it, and compares it with the ledger. */
const check = (started: Started, ledger: Ledger, before: (sql: PgClient.PgClient) => Effect.Effect<unknown, unknown>) =>
  Effect.gen(function* () {
    const { key, settings } = started
    const { url } = yield* startService(settings)
    const sql = yield* database(started)
    yield* before(sql)
    const answers = new Map<string, string>()
    yield* Effect.forEach(
      ledger.acked,
      ({ id }) => Effect.map(getOver(url, key, id), ({ body }) => answers.set(id, body)),
      { concurrency: 16 }
    )
    const keyring = readFileSync(join(settings.BYOK_DATA_DIR, "keyring"), "utf8")
    const inProcess = {
      ...settingsFor("postgres://unused@localhost/unused", keyring),
      databaseUrl: Option.none(),
      dataDirectory: settings.BYOK_DATA_DIR
    }
    const context = yield* Layer.build(Byok.layerWith(inProcess))
    const { findSealed } = Context.get(context, CredentialRepository)
    const { open } = Context.get(context, Cipher)
    const rows = yield* sql<{ id: string; account_id: string; name: string | null }>`
      SELECT id, account_id, name FROM credentials`
    const found = yield* Effect.forEach(
      rows,
      Effect.fnUntraced(function* ({ account_id, id, name }) {
        const account = AccountId.make(account_id)
        const { credential, sealed } = Option.getOrThrow(yield* findSealed(account, CredentialId.make(id)))
        return { id, name, key: Redacted.value(yield* open(sealed, { ...credential, account_id: account })) }
      }),
      { concurrency: 16 }
    )
    return faultsOf(ledger, found, answers)
  })

const nothing = () => Effect.void

describe("what was acknowledged is there, opens to the key that was sent, and nothing else is", () => {
  it.live(
    `after the service was killed ${kills} times under load (R1); the checker finds a row that was deleted (control)`,
    () =>
      Effect.gen(function* () {
        const started = yield* firstStart
        const ledger = newLedger()
        for (let n = 0; n < kills; n++) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              const service = yield* startService(started.settings)
              yield* Effect.asVoid(load(service.url, started.key, ledger))
              yield* untilAcked(ledger, enough)
              yield* service.signal("SIGKILL")
              assert.strictEqual(yield* service.ended, "SIGKILL")
            })
          )
        }
        assert.isAtLeast(ledger.acked.length, kills * enough)
        assert.deepStrictEqual(yield* Effect.scoped(check(started, ledger, nothing)), [])

        const [victim] = ledger.acked
        assert(victim !== undefined)
        const faults = yield* check(started, ledger, (sql) => sql`DELETE FROM credentials WHERE id = ${victim.id}`)
        assert.deepStrictEqual(faults, [`lost: ${victim.id}`, `get answers otherwise: ${victim.id}`])
      })
  )

  it.live("after SIGTERM under load: every request that was sent is answered, the exit code is 0 (R2)", () =>
    Effect.gen(function* () {
      const started = yield* firstStart
      const ledger = newLedger()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const service = yield* startService(started.settings)
          yield* Effect.asVoid(load(service.url, started.key, ledger))
          yield* untilAcked(ledger, enough)
          yield* service.signal("SIGTERM")
          assert.strictEqual(yield* service.ended, 0)
        })
      )
      assert.deepStrictEqual(ledger.unknown, [])
      assert.deepStrictEqual(yield* check(started, ledger, nothing), [])
    })
  )

  it.live("after PostgreSQL was killed under load, which the service survives and puts right by itself (R3)", () =>
    Effect.gen(function* () {
      const started = yield* firstStart
      const ledger = newLedger()
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { url } = yield* startService(started.settings)
          yield* Effect.asVoid(load(url, started.key, ledger))
          yield* untilAcked(ledger, enough)
          const postmaster = postmasterOf(started.settings.BYOK_DATA_DIR)
          process.kill(postmaster, "SIGKILL")
          yield* eventually(
            "requests fail",
            Effect.sync(() => ledger.unknown.length > 0)
          )
          yield* untilAcked(ledger, enough)
          assert.notStrictEqual(postmasterOf(started.settings.BYOK_DATA_DIR), postmaster)
        })
      )
      assert.deepStrictEqual(ledger.refused, [])
      assert.isBelow(ledger.slowest, 15_000)
      assert.deepStrictEqual(yield* check(started, ledger, nothing), [])
    })
  )
})
