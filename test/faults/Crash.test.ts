import { Effect } from "effect"
import { PgClient } from "@effect/sql-pg"
import { embeddedClient, startedBefore } from "../support/process/firstStart.ts"
import { eventually } from "../support/process/eventually.ts"
import { postmasterOf, startService } from "../support/process/ServiceProcess.ts"
import { type Ledger, load, newLedger, untilAcked } from "../support/database/AckChecker.ts"
import { faultsAfterwards } from "./faultsAfterwards.ts"
import { assert, describe, it } from "../support/it.ts"

/** How many times the service is killed. */
const kills = 3

/** DATABASE_DEADLINE unless it is set, in milliseconds. */
const deadline = 3_000

/** How many acknowledgements make a load. */
const enough = 150

type Started = Effect.Success<typeof startedBefore>

/** Starts the service again and compares what is stored with the ledger. */
const check = (started: Started, ledger: Ledger, before: (sql: PgClient.PgClient) => Effect.Effect<unknown, unknown>) =>
  Effect.gen(function* () {
    const { url } = yield* startService(started.settings)
    yield* before(yield* embeddedClient(started.settings))
    return yield* faultsAfterwards({ ...started, url }, ledger)
  })

const nothing = () => Effect.void

describe("the stored credentials and keys", () => {
  it.live(
    `are the acknowledged ones after ${kills} kills of the service (R1); a lost and a returned row are noticed (control)`,
    function* () {
      const started = yield* startedBefore
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

      assert.isTrue(ledger.acked.some(({ deleted }) => deleted === "acknowledged"))
      const [victim, revenant] = ledger.acked.filter(({ deleted }) => deleted === "no")
      assert(victim !== undefined && revenant !== undefined)
      revenant.deleted = "acknowledged"
      const faults = yield* check(started, ledger, (sql) => sql`DELETE FROM credentials WHERE id = ${victim.id}`)
      assert.deepStrictEqual(faults, [
        `lost: ${victim.id}`,
        `deleted and there again: ${revenant.id}`,
        `get answers otherwise: ${victim.id}`
      ])
    }
  )

  it.live("are the acknowledged ones after SIGTERM; requests are answered, the exit code is 0 (R2)", function* () {
    const started = yield* startedBefore
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

  it.live("are the acknowledged ones after PostgreSQL is killed; the service recovers by itself (R3)", function* () {
    const started = yield* startedBefore
    const ledger = newLedger()
    yield* Effect.scoped(
      Effect.gen(function* () {
        const { url } = yield* startService(started.settings)
        yield* Effect.asVoid(load(url, started.key, ledger))
        yield* untilAcked(ledger, enough)
        const postmaster = postmasterOf(started.settings.BYOK_DATA_DIR)
        process.kill(postmaster, "SIGKILL")
        // Requests may well succeed throughout: they are retried until their deadline (F5).
        yield* eventually(
          "another postmaster",
          Effect.try(() => postmasterOf(started.settings.BYOK_DATA_DIR)).pipe(
            Effect.match({ onFailure: () => false, onSuccess: (pid) => pid !== postmaster })
          )
        )
        yield* untilAcked(ledger, enough)
      })
    )
    assert.deepStrictEqual(ledger.refused, [])
    assert.isBelow(ledger.slowest, deadline + 3_000)
    assert.deepStrictEqual(yield* check(started, ledger, nothing), [])
  })
})
