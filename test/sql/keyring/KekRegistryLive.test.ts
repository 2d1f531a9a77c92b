import { Context, Effect, Exit, Fiber } from "effect"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import { assert, it, layerLive } from "../../support/it.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { openBehindProxy } from "../../support/database/lossyStore.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { Store } from "../../support/database/stores.ts"
import { holdOpen, untilWaiting } from "../../support/database/transactions.ts"

const Admin = Effect.map(Store, ({ sql }) => sql)

const kek = (kek_id: string, byte: number) => ({ kek_id, check_value: new Uint8Array(16).fill(byte) })

const registered = Effect.gen(function* () {
  const sql = yield* Admin
  const rows = yield* sql<{ id: string; byte: string }>`
    SELECT id, get_byte(check_value, 0)::text AS byte FROM keks ORDER BY id`
  return rows.map(({ byte, id }) => `${id}=${byte}`)
})

/** A credential that names the given key, and no other one. */
const sealedUnder = (kek_id: string) =>
  Effect.gen(function* () {
    yield* (yield* Admin)`DELETE FROM credentials`
    const { account_id, workspace_id } = yield* newTenant
    const { insert } = yield* CredentialRepository
    yield* insert(account_id, plainCredential(workspace_id), { ...plainSealedKey(), kek_id })
  })

layerLive(Store.layer)("the registry of key-encryption keys on PostgreSQL", (it) => {
  it.effect("accepts one of several different keys that are registered under one id at once (T12)", function* () {
    const { register } = yield* KekRegistry
    for (const round of Array.from({ length: 20 }, (_, n) => `race-${n}`)) {
      const answers = yield* Effect.forEach([1, 2, 3, 4], (byte) => register([kek(round, byte)]), {
        concurrency: "unbounded"
      })
      assert.lengthOf(
        answers.filter((differing) => differing.length === 0),
        1,
        round
      )
    }
  })

  it.effect("registers none of the given keys if one conflicts with a concurrent registration (T12)", function* () {
    const { register } = yield* KekRegistry
    const sql = yield* Admin
    const commit = yield* holdOpen(
      sql,
      `INSERT INTO keks (id, check_value) VALUES ('z', decode(repeat('01', 16), 'hex'))`
    )
    const loser = yield* Effect.forkChild(register([kek("beside", 9), kek("z", 9)]))
    yield* untilWaiting(sql, 1)
    yield* commit
    assert.deepStrictEqual(yield* Fiber.join(loser), ["z"])
    assert.notInclude((yield* registered).join(), "beside")
  })

  it.effect("does not retire a key-encryption key while a row that names it is being inserted (T10)", function* () {
    const { find, register, retire } = yield* KekRegistry
    const sql = yield* Admin
    yield* sealedUnder("named")
    yield* register([kek("stale", 1)])
    const commit = yield* holdOpen(
      sql,
      `INSERT INTO credentials SELECT gen_random_uuid(), account_id, workspace_id, provider, name, label, created_at,
          disabled, is_fallback, is_required, is_byok_only, NULL, NULL, NULL, NULL, NULL, 7, 'stale', wrapped_dek, sealed
          FROM credentials`
    )
    const retiring = yield* Effect.forkChild(retire("stale"))
    yield* untilWaiting(sql, 1)
    const reading = yield* sql<{ n: number }>`SELECT count(*)::int AS n FROM credentials`
    assert.strictEqual(reading[0]?.n, 1, "nothing waits long behind the retirement")
    assert.isUndefined(retiring.pollUnsafe())
    yield* commit
    assert.strictEqual(yield* Fiber.join(retiring), 1)
    assert.isFalse((yield* find(["stale"]))[0]?.retired)

    yield* sql`UPDATE credentials SET kek_id = 'named' WHERE kek_id = 'stale'`
    assert.strictEqual(yield* retire("stale"), 0)
    assert.isTrue((yield* find(["stale"]))[0]?.retired)
    const back = yield* Effect.exit(sql`UPDATE credentials SET kek_id = 'stale'`)
    assert.isTrue(Exit.isFailure(back), "nor does a rewrap with an old keyring bring rows back under it")
  })

  it.effect.each(["NULL", "null", "a.b-C_9"])(
    'audits the retirement of a key with the id "%s" once, even if it is retired twice (T10)',
    function* (id) {
      const { register, retire } = yield* KekRegistry
      const sql = yield* Admin
      yield* sealedUnder("named")
      yield* register([kek(id, 1)])
      yield* retire(id)
      yield* retire(id)
      const back = yield* Effect.exit(sql`UPDATE credentials SET kek_id = ${id}`)
      assert.isTrue(Exit.isFailure(back))
      const retirements = (yield* eventsIn(sql)).filter(
        (event) => event.action === "keyring.retire" && event.kek_id === id
      )
      assert.lengthOf(retirements, 1)
    }
  )
})

it.live("a promotion is audited once if the database's answer is lost, and again if it is repeated", function* () {
  const { ports, proxy, sql } = yield* openBehindProxy
  const { recordPromotion } = Context.get(ports, KekRegistry)
  const promoted = Effect.map(eventsIn(sql), (events) =>
    events.flatMap((event) => (event.action === "keyring.promote" ? [event.kek_id] : []))
  )
  proxy.loseAnswer("INSERT 0 1")
  yield* recordPromotion("next")
  assert.strictEqual(proxy.lost(), 1)
  assert.deepStrictEqual(yield* promoted, ["next"])
  yield* recordPromotion("next")
  assert.deepStrictEqual(yield* promoted, ["next", "next"])
})
