import { randomUUID } from "node:crypto"
import { Effect } from "effect"
import { type ParkingChange, Parkings } from "../../../src/port/Parkings.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { Store } from "../../support/database/stores.ts"
import { refuseInserts } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const open = Effect.gen(function* () {
  const { sql } = yield* Store
  const { store } = yield* Parkings
  const { account_id, workspace_id } = yield* newTenant
  const { id: credential_id } = yield* insertPlain(
    account_id,
    plainCredential(workspace_id, randomUUID()),
    plainSealedKey()
  )
  const seen = (...changes: ReadonlyArray<Partial<ParkingChange>>) =>
    store(
      changes.map((change) => ({
        account_id,
        credential_id,
        model: "",
        key_version: 1,
        epoch: 0,
        cause: "rejected",
        strikes: 1,
        remaining: 60_000,
        ...change
      }))
    )
  const events = Effect.map(eventsIn(sql), (all) =>
    all.flatMap((event) => {
      if (event.action !== "credential.rejected" && event.action !== "credential.recovered") return []
      assert.deepInclude(event, { credential_id, provider: "openai", label: "***...***", actor: { kind: "service" } })
      return [`${event.action} ${event.cause} ${event.model} ${event.key_version}`]
    })
  )
  return { events, seen, sql }
})

describe("audit events of refused keys", () => {
  it.live("are written once per change of a key's state, however often it is tried, and not for rate limits", () =>
    Effect.gen(function* () {
      const { events, seen } = yield* open
      yield* seen({ model: "m", cause: "rate_limited" })
      yield* seen({ model: "m", cause: null, epoch: 1, strikes: 0, remaining: null })
      assert.deepStrictEqual(yield* events, [])
      yield* seen({})
      yield* seen({})
      yield* seen({ strikes: 2, remaining: 120_000 })
      for (const strikes of [1, 2, 3, 4]) {
        assert.lengthOf(yield* events, strikes === 4 ? 2 : 1, "a bare 403 says little until the third in a row")
        yield* seen({ model: "m", cause: "forbidden", epoch: 1, strikes, remaining: 60_000 * strikes })
      }
      assert.deepStrictEqual(yield* events, [
        "credential.rejected rejected null 1",
        "credential.rejected forbidden m 1"
      ])
      yield* seen({ cause: "quota_exhausted", strikes: 3, remaining: 240_000 })
      const succeeded = { cause: null, epoch: 1, strikes: 0, remaining: null }
      yield* seen(succeeded)
      yield* seen(succeeded)
      yield* seen({ epoch: 1 })
      assert.deepStrictEqual((yield* events).slice(2), [
        "credential.rejected quota_exhausted null 1",
        "credential.recovered quota_exhausted null 1",
        "credential.rejected rejected null 1"
      ])
    }).pipe(Effect.provide(Store.layer))
  )

  it.live("are written once for a refusal of many models, until it ends or the key recovers", () =>
    Effect.gen(function* () {
      const { events, seen, sql } = yield* open
      const forbidden = (n: number) => ({ model: `m${n}`, cause: "forbidden", strikes: 3 }) as const
      const refused = (n: number) => `credential.rejected forbidden m${n} 1`
      const none: ReadonlyArray<string> = []
      const expect = Effect.fnUntraced(function* (...added: ReadonlyArray<string>) {
        assert.deepStrictEqual(yield* events, [...expected, ...added])
        expected = [...expected, ...added]
      })
      let expected = none
      yield* seen(...Array.from({ length: 50 }, (_, n) => forbidden(n)))
      assert.lengthOf(yield* events, 1)
      expected = yield* events
      for (let n = 50; n < 100; n++) yield* seen(forbidden(n))
      yield* expect()
      assert.lengthOf(yield* sql`SELECT 1 FROM credential_parkings`, 100, "control")
      yield* seen({ cause: "quota_exhausted" })
      yield* expect("credential.rejected quota_exhausted null 1")
      yield* seen({ ...forbidden(7), cause: null, epoch: 1, strikes: 0, remaining: null })
      yield* expect("credential.recovered forbidden m7 1")
      yield* seen(forbidden(100))
      yield* expect(refused(100))
      yield* sql`UPDATE credential_parkings SET until = now() - interval '1 second' WHERE until IS NOT NULL`
      yield* seen({ ...forbidden(100), strikes: 4 })
      yield* expect()
      yield* sql`UPDATE credential_parkings SET until = now() - interval '1 second' WHERE until IS NOT NULL`
      yield* seen(forbidden(101))
      yield* expect(refused(101))
    }).pipe(Effect.provide(Store.layer))
  )

  it.live("are stored together with the parking, or neither is stored", () =>
    Effect.gen(function* () {
      const { events, seen, sql } = yield* open
      yield* refuseInserts(sql, "audit_entries", "23514")
      yield* Effect.exit(seen({}))
      assert.lengthOf(yield* sql`SELECT 1 FROM credential_parkings`, 0)
      yield* sql`DROP TRIGGER refuse ON audit_entries`
      yield* seen({})
      assert.lengthOf(yield* sql`SELECT 1 FROM credential_parkings`, 1)
      assert.lengthOf(yield* events, 1)
    }).pipe(Effect.provide(Store.layer))
  )
})
