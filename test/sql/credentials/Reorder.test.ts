import { Effect, Fiber, Option } from "effect"
import { CredentialId } from "../../../src/domain/Identifiers.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { holdOpen, untilWaiting } from "../../support/database/transactions.ts"
import { assert, it } from "../../support/it.ts"

const provider = "openai"
const idsOf = (numbers: ReadonlyArray<number>) => numbers.map((n) => CredentialId.make(uuid(n)))

/** A pool whose members are routed in the order 13, 14, 12, 11: by `sort_order`, time of creation, id. */
const open = Effect.gen(function* () {
  const { admin, proxy, repository } = yield* openLossyStore
  for (const n of [11, 12, 13, 14]) {
    yield* repository.insert(account_id, plainCredential(workspace_id, uuid(n)), plainSealedKey(n))
  }
  yield* admin`UPDATE credentials SET created_at = '2026-01-01', sort_order = 0`
  yield* admin`UPDATE credentials SET sort_order = 1 WHERE id = ${uuid(11)}`
  yield* admin`UPDATE credentials SET created_at = '2026-01-02' WHERE id = ${uuid(12)}`
  const state = Effect.gen(function* () {
    const [pool] = yield* admin<{ version: number }>`SELECT version::int AS version FROM pools`
    const rows = yield* admin<{ sort_order: number }>`SELECT sort_order FROM credentials ORDER BY id`
    return { version: pool?.version, orders: rows.map(({ sort_order }) => sort_order) }
  })
  const reorder = (...numbers: ReadonlyArray<number>) =>
    repository.reorder(account_id, { workspace_id, provider, ids: idsOf(numbers) })
  return { admin, proxy, reorder, state }
})

it.live(
  "a reorder stores a new order with its audit event, and writes nothing if it changes nothing (L14)",
  function* () {
    const { admin, reorder, state } = yield* open
    const before = yield* state
    assert.deepStrictEqual(before.orders, [1, 0, 0, 0])
    assert.deepStrictEqual(yield* reorder(13, 14, 12, 11), Option.none())
    assert.deepStrictEqual(yield* state, before)
    assert.deepStrictEqual(yield* reorder(14, 13, 12, 11), Option.none())
    assert.deepStrictEqual(yield* state, { version: (before.version ?? 0) + 1, orders: [3, 2, 1, 0] })
    const events = (yield* eventsIn(admin)).filter(({ action }) => action === "credential.reorder")
    assert.lengthOf(events, 1)
    assert.deepInclude(events[0], { credential_ids: idsOf([14, 13, 12, 11]) })
  }
)

it.live("a reorder locks the pool before its credentials, like every write", function* () {
  const { admin, reorder } = yield* open
  const release = yield* holdOpen(admin, "SELECT FROM pools FOR UPDATE")
  const order = yield* Effect.forkChild(reorder(14, 13, 12, 11))
  yield* untilWaiting(admin, 1)
  assert.lengthOf(yield* admin`SELECT FROM credentials FOR UPDATE SKIP LOCKED`, 4)
  yield* release
  assert.deepStrictEqual(yield* Fiber.join(order), Option.none())
})

it.live("a reorder whose answer is lost is not stored again over a later one (L14)", function* () {
  const { admin, proxy, reorder, state } = yield* open
  const later = admin`UPDATE credentials SET sort_order = CASE WHEN id = ${uuid(14)} THEN 9 ELSE sort_order END`
  proxy.loseAnswer("SELECT 1", 0, later)
  assert.deepStrictEqual(yield* reorder(14, 13, 12, 11), Option.none())
  assert.strictEqual(proxy.lost(), 1)
  assert.deepStrictEqual((yield* state).orders, [3, 2, 1, 9])
})
