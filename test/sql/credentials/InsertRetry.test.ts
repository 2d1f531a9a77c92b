import { Cause, DateTime, Effect, Exit, Fiber, Option } from "effect"
import { AccountId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { insertInto, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { disconnectWaiting, holdOpen, lockTable, untilWaiting } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const credential = (n: number) => ({
  ...plainCredential(workspace_id, uuid(n)),
  allowed_models: ["m", "m"],
  allowed_user_ids: [],
  declared_zdr: true
})

const record = { key_hash: new Uint8Array(32).fill(1), fingerprint: new Uint8Array(32).fill(2) }

const open = Effect.gen(function* () {
  const { admin, proxy, repository, stored } = yield* openLossyStore
  const insert = insertInto(repository)
  /** Inserts under one idempotency key. */
  const insertOnce = (n: number) => repository.insert(account_id, credential(n), plainSealedKey(n), record)
  const rows = Effect.map(admin`SELECT id, sort_order FROM credentials ORDER BY id`, (found) =>
    found.map((row) => ({ ...row }))
  )
  /** The credential of that number as an insert returns it: with what its row was assigned. */
  const asStored = Effect.fnUntraced(function* (n: number) {
    const [row] = yield* admin<{ created_at: Date; sort_order: number }>`
      SELECT created_at, sort_order FROM credentials WHERE account_id = ${account_id} AND id = ${uuid(n)}`
    assert(row !== undefined)
    return { ...credential(n), ...row, created_at: DateTime.fromDateUnsafe(row.created_at) }
  })
  const plain = Effect.suspend(() => insert(account_id, credential(11), plainSealedKey(1)))
  const recorded = Effect.map(
    Effect.suspend(() => insertOnce(11)),
    Option.getOrThrow
  )
  return { admin, asStored, insert, insertOnce, plain, recorded, proxy, rows, stored }
})

describe("an insert of a credential", () => {
  const kinds = [
    ["without an idempotency record", "plain", "credentials"],
    ["with an idempotency record", "recorded", "idempotency_records"]
  ] as const
  it.live.each(kinds)("%s is retried and stored once if the database's answer is lost (R3)", function* ([, kind]) {
    const { asStored, [kind]: insert, proxy, rows, stored } = yield* open
    proxy.loseAnswer(stored)
    assert.deepStrictEqual(yield* insert, yield* asStored(11))
    assert.strictEqual(proxy.lost(), 1)
    assert.deepStrictEqual(yield* rows, [{ id: uuid(11), sort_order: 0 }])
  })

  it.live.each(kinds)("%s is retried and stored once if its connection is lost (R3)", function* ([, kind, table]) {
    const { admin, asStored, [kind]: insert, rows } = yield* open
    const unlock = yield* lockTable(admin, table)
    const caller = yield* Effect.forkChild(insert)
    yield* disconnectWaiting(admin, unlock)
    assert.deepStrictEqual(yield* Fiber.join(caller), yield* asStored(11))
    assert.deepStrictEqual(yield* rows, [{ id: uuid(11), sort_order: 0 }])
  })
})

describe("an idempotent insert (SECURITY.md, Idempotency records)", () => {
  const taking = `
    INSERT INTO idempotency_records VALUES (
      '${account_id}', decode(repeat('01', 32), 'hex'), '${uuid(10)}', decode(repeat('02', 32), 'hex'), now()
    )`

  it.live("waits for another insert with its idempotency key, and stores nothing if that one commits", function* () {
    const { admin, insert, insertOnce, rows } = yield* open
    yield* insert(account_id, credential(10), plainSealedKey(10))
    const commit = yield* holdOpen(admin, taking)
    const caller = yield* Effect.forkChild(insertOnce(11))
    yield* untilWaiting(admin, 1)
    yield* commit
    assert.deepStrictEqual(yield* Fiber.join(caller), Option.none())
    assert.deepStrictEqual(yield* rows, [{ id: uuid(10), sort_order: 0 }])
  })

  it.live("stores its row if another insert with its idempotency key is rolled back", function* () {
    const { admin, asStored, insert, insertOnce, rows } = yield* open
    yield* insert(account_id, credential(10), plainSealedKey(10))
    const end = yield* holdOpen(admin, taking)
    const caller = yield* Effect.forkChild(insertOnce(11))
    yield* untilWaiting(admin, 1)
    yield* admin`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE state = 'idle in transaction' AND datname = current_database()`
    assert.deepStrictEqual(yield* Fiber.join(caller), Option.some(yield* asStored(11)))
    assert.deepStrictEqual(yield* rows, [
      { id: uuid(10), sort_order: 0 },
      { id: uuid(11), sort_order: 1 }
    ])
    yield* Effect.ignoreCause(end)
  })
})

describe("an insert under an id that is taken", () => {
  it.live("fails and changes nothing, unless only another account has the id (T6)", function* () {
    const { admin, insert, rows } = yield* open
    yield* insert(account_id, credential(11), plainSealedKey(1))
    const [other, otherWorkspace] = [AccountId.make(uuid(3)), WorkspaceId.make(uuid(4))]
    yield* admin`INSERT INTO accounts VALUES (${other}, 'n', now())`
    yield* admin`INSERT INTO workspaces VALUES (${otherWorkspace}, ${other}, 'n', true, now(), NULL)`
    const exit = yield* Effect.exit(insert(account_id, credential(11), plainSealedKey(2)))
    assert(Exit.isFailure(exit))
    const failure = Cause.squash(exit.cause)
    assert.instanceOf(failure, DatabaseFailure)
    assert.strictEqual(failure.message, "IdTaken credentials_pkey")
    assert.deepStrictEqual(yield* rows, [{ id: uuid(11), sort_order: 0 }])
    yield* insert(other, { ...credential(11), workspace_id: otherWorkspace }, plainSealedKey(3))
    const keys = yield* admin`SELECT account_id, get_byte(wrapped_dek, 0) AS byte FROM credentials ORDER BY account_id`
    assert.deepEqual(keys, [
      { account_id, byte: 1 },
      { account_id: other, byte: 3 }
    ])
  })
})
