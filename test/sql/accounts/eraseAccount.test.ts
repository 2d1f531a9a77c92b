import { DateTime, Effect, Fiber, Option } from "effect"
import { CredentialId } from "../../../src/domain/Identifiers.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { insertInto, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { holdOpen, untilWaiting } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const at = DateTime.makeUnsafe(0)

describe("an erasure of an account (L13)", () => {
  it.live("continues after the answer to a step's COMMIT is lost, and audits each deletion once", function* () {
    const { accounts, admin, proxy, repository } = yield* openLossyStore
    const insert = insertInto(repository)
    const ids = [3, 4, 5].map((n) => CredentialId.make(uuid(n)))
    for (const id of ids) yield* insert(account_id, plainCredential(workspace_id, id), plainSealedKey())
    proxy.loseAnswer("COMMIT")
    const step = yield* accounts.eraseAccount(account_id, at, 1)
    assert.strictEqual(proxy.lost(), 1)
    assert.deepStrictEqual(step, Option.some({ credentials: 1, idempotency_records: 0, done: false }))
    assert.lengthOf(yield* admin`SELECT FROM credentials`, 1, "each attempt was a step")
    yield* accounts.eraseAccount(account_id, at, 2)
    const deleted = (yield* eventsIn(admin)).flatMap((event) =>
      event.action === "credential.delete" ? [event.credential_id] : []
    )
    assert.sameMembers(deleted, ids)
  })

  it.live("locks pools before their credentials, as every write does", function* () {
    const { accounts, admin, repository } = yield* openLossyStore
    for (const [n, provider] of ["xai", "azure"].entries()) {
      const row = { ...plainCredential(workspace_id, uuid(n)), provider }
      yield* repository.insert(account_id, row, plainSealedKey())
    }
    const free = (table: string) =>
      Effect.map(admin.unsafe<{ provider: string }>(`SELECT provider FROM ${table} FOR UPDATE SKIP LOCKED`), (rows) =>
        rows.map(({ provider }) => provider)
      )
    const release = yield* holdOpen(admin, "SELECT FROM pools WHERE provider = 'xai' FOR NO KEY UPDATE")
    const erasing = yield* Effect.forkChild(accounts.eraseAccount(account_id, at, 500), { startImmediately: true })
    yield* untilWaiting(admin, 1)
    assert.sameMembers(yield* free("credentials"), ["azure", "xai"], "whoever has the pool gets its members")
    assert.deepStrictEqual(yield* free("pools"), [], "the first pool is locked while the last one is waited for")
    yield* release
    assert.deepInclude(Option.getOrThrow(yield* Fiber.join(erasing)), { credentials: 2, done: true })
  })

  it.live("is reported as done if the answer to its last COMMIT is lost", function* () {
    const { accounts, proxy } = yield* openLossyStore
    proxy.loseAnswer("COMMIT")
    const erased = yield* accounts.eraseAccount(account_id, at, 500)
    assert.strictEqual(proxy.lost(), 1)
    assert.deepStrictEqual(Option.getOrUndefined(erased), { credentials: 0, idempotency_records: 0, done: true })
    assert.isTrue(Option.isNone(yield* accounts.eraseAccount(account_id, at, 500)))
  })
})
