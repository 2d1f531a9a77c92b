import { Effect } from "effect"
import { PgClient } from "@effect/sql-pg"
import { embeddedClient, startedBefore } from "../support/process/firstStart.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { type Ledger, load, newLedger, untilAcked } from "../support/database/AckChecker.ts"
import { faultsAfterwards } from "./faultsAfterwards.ts"
import { assert, describe, it } from "../support/it.ts"

/** How many times the service is killed. */
const kills = 3

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
})
