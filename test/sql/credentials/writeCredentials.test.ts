import { Arbitrary, Context, Effect, Exit, Fiber, Layer, Option } from "effect"
import { CredentialId, type WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import * as Persistence from "../../../src/wiring/Persistence.ts"
import { adminClient, migratedDatabase, settingsFor } from "../../support/database/freshDatabase.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { holdOpen, untilWaiting } from "../../support/database/transactions.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { assert, describe, it } from "../../support/it.ts"

const limits = { credentials: 3, bytes: 4000 }
const providers = ["azure", "openai", "xai"] as const

/** One of few credentials of three pools: concurrent writes meet on members and on pools. */
const act = Arbitrary.all({
  n: integer(0, 11),
  write: elementOf(["create", "create once", "create once", "rename", "lengthen", "delete", "reorder"])
})
/** Writes that are made at the same time, a moment after the other. */
const history = Arbitrary.array(Arbitrary.array(act, { minLength: 1, maxLength: 12 }), { minLength: 1, maxLength: 6 })
type Act = typeof act extends Arbitrary.Arbitrary<infer A> ? A : never

const open = Effect.gen(function* () {
  const url = yield* migratedDatabase
  const { database, ...settings } = settingsFor(url)
  // Two instances: their writes meet in the database only.
  const stores = [1, 2].map(() =>
    Persistence.layer({ ...settings, database: { ...database, poolSize: 8 }, poolLimits: limits })
  )
  const ports = yield* Effect.forEach(stores, (store) => Layer.build(Layer.fresh(store)))
  return { ports, sql: yield* adminClient(url) }
})

describe("writes of credentials", () => {
  it.live("keep the pool's counts exact and within its limits", function* () {
    const { ports, sql } = yield* open
    const [first = assert.fail()] = ports
    const repositories = ports.map((each) => Context.get(each, CredentialRepository))
    const run = Effect.fnUntraced(function* (moments: ReadonlyArray<ReadonlyArray<Act>>) {
      const { account_id, workspace_id } = yield* Effect.provide(newTenant, first)
      const ids = Array.from({ length: 12 }, () => CredentialId.make(crypto.randomUUID()))
      const versions = sql<{ provider: string; version: string }>`
          SELECT provider, version::text AS version FROM pools WHERE account_id = ${account_id}`
      const versionOf = (rows: Effect.Success<typeof versions>, provider: string) =>
        Number(rows.find((row) => row.provider === provider)?.version ?? 0)
      const perform = ({ n, write }: Act, turn: number) => {
        const repository = repositories[turn % 2] ?? assert.fail()
        if (write.startsWith("create")) ids[n] = CredentialId.make(crypto.randomUUID())
        const id = ids[n] ?? assert.fail()
        const provider = providers[n % 3] ?? "azure"
        return Effect.gen(function* () {
          const before = versionOf(yield* versions, provider)
          const done = yield* make(repository, write, account_id, workspace_id, id, provider)
          if (done) assert.isAbove(versionOf(yield* versions, provider), before, `${write} raises the version`)
          return [write, done] as const
        })
      }
      for (const acts of moments) {
        const results = yield* Effect.forEach(acts, perform, { concurrency: "unbounded" })
        assert.lengthOf(results, acts.length)
        const [wrong] = yield* sql<{ provider: string }>`
            SELECT pools.provider FROM pools LEFT JOIN LATERAL (
              SELECT count(*) AS n, coalesce(max(sort_order), -1) AS last, coalesce(sum(
                octet_length(sealed) + coalesce(octet_length(array_to_string(allowed_models, '')), 0)
              ), 0) AS bytes FROM credentials
              WHERE credentials.account_id = pools.account_id AND credentials.provider = pools.provider
            ) AS found ON true
            WHERE account_id = ${account_id} AND NOT (
              members = n AND pools.bytes = found.bytes AND next_order > last
              AND members <= ${limits.credentials} AND pools.bytes <= ${limits.bytes}
            )`
        assert.isUndefined(wrong?.provider)
        const orphans = yield* sql`
          SELECT 1 FROM idempotency_records AS record WHERE account_id = ${account_id} AND NOT EXISTS (
            SELECT 1 FROM audit_entries WHERE audit_entries.account_id = record.account_id AND operation = credential_id
          )`
        assert.lengthOf(orphans, 0, "a key is taken with its credential or not at all")
      }
      return true
    })
    const checked = yield* Arbitrary.checkEffect(history, run, { runs: 25 })
    assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
    const [{ deadlocks } = { deadlocks: -1 }] = yield* sql<{ deadlocks: number }>`
        SELECT deadlocks::int AS deadlocks FROM pg_stat_database WHERE datname = current_database()`
    assert.strictEqual(deadlocks, 0)
  })

  it.live("succeed in a pool beyond its limit if they do not grow it", function* () {
    const { ports, sql } = yield* open
    const [store = assert.fail()] = ports
    const repository = Context.get(store, CredentialRepository)
    const { account_id, workspace_id } = yield* Effect.provide(newTenant, store)
    const rows = [plainCredential(workspace_id), plainCredential(workspace_id), plainCredential(workspace_id)]
    for (const row of rows) yield* repository.insert(account_id, row, plainSealedKey(1))
    const change = (n: number, write = "rename") =>
      make(repository, write, account_id, workspace_id, rows[n]?.id, "openai")
    yield* sql`UPDATE pools SET bytes = ${limits.bytes + 1000}`
    const together = Effect.exit(
      Effect.all([change(0, "lengthen"), change(1), change(2)], { concurrency: 3, mode: "result" })
    )
    const made = Exit.isSuccess(yield* together) ? yield* sql`SELECT name FROM credentials WHERE name IS NOT NULL` : []
    assert.lengthOf(made, 2, "beside one that grows, and is refused")
    const release = yield* holdOpen(sql, "SELECT FROM pools FOR UPDATE")
    const meeting = yield* Effect.forkChild(Effect.all([change(0), change(1), change(2)], { concurrency: 3 }))
    yield* untilWaiting(sql, 3)
    yield* release
    assert.deepStrictEqual(yield* Fiber.join(meeting), [true, true, true])
    // This update loses: its revision was read before the previous change.
    const found = Option.getOrThrow(yield* repository.findSealed(account_id, rows[0]?.id ?? assert.fail()))
    const { credential, key_version, revision } = found
    const lost = { credential, key_version, sealed: undefined, fields: ["name"], revision: revision - 1 } as const
    assert.isFalse(yield* repository.update(account_id, lost), "another change was made, the pool is not to blame")
    const longer = { ...lost, credential: { ...credential, allowed_models: ["m".repeat(1500)] }, revision }
    assert.deepInclude(yield* Effect.flip(repository.update(account_id, longer)), { _tag: "PoolFull", unit: "bytes" })
  })

  it.live("are refused if they lose the race for the last place in a pool", function* () {
    const { ports, sql } = yield* open
    const [store = assert.fail()] = ports
    const { account_id, workspace_id } = yield* Effect.provide(newTenant, store)
    const create = make(Context.get(store, CredentialRepository), "create", account_id, workspace_id)
    assert.isTrue(yield* create)
    const release = yield* holdOpen(sql, "SELECT FROM pools FOR UPDATE")
    const creates = yield* Effect.forkChild(
      Effect.all(
        Array.from({ length: 4 }, () => create),
        { concurrency: 4 }
      )
    )
    yield* untilWaiting(sql, 4)
    yield* release
    assert.deepStrictEqual((yield* Fiber.join(creates)).toSorted(), [false, false, true, true])
  })

  it.live("delete a credential that a concurrent update has made larger than its pool was", function* () {
    const { ports, sql } = yield* open
    const [first = assert.fail(), second = assert.fail()] = ports
    const [one, other] = [Context.get(first, CredentialRepository), Context.get(second, CredentialRepository)]
    const { account_id, workspace_id } = yield* Effect.provide(newTenant, first)
    const row = { ...plainCredential(workspace_id), provider: "azure" }
    yield* one.insert(account_id, row, plainSealedKey(1))
    const release = yield* holdOpen(sql, "SELECT FROM pools FOR UPDATE")
    const lengthen = yield* Effect.forkChild(make(one, "lengthen", account_id, workspace_id, row.id, row.provider))
    yield* untilWaiting(sql, 1)
    const remove = yield* Effect.forkChild(other.delete(account_id, row.id))
    yield* untilWaiting(sql, 2)
    yield* release
    assert.isTrue(yield* Fiber.join(lengthen))
    assert.isTrue(yield* Fiber.join(remove))
    const pools = yield* sql`SELECT members, bytes::int FROM pools`
    assert.deepStrictEqual(pools, [{ members: 0, bytes: 0 }])
  })
})

type Repository = CredentialRepository["Service"]

/** Writes the credential at its stored revision. Returns whether the write was made. */
const make = Effect.fnUntraced(function* (
  repository: Repository,
  write: string,
  account_id: Parameters<Repository["insert"]>[0],
  workspace_id: WorkspaceId,
  id: CredentialId = CredentialId.make(crypto.randomUUID()),
  provider: string = "openai"
) {
  if (write.startsWith("create")) {
    const row = { ...plainCredential(workspace_id, id), provider }
    // Few keys, so that creates in one pool and in several meet on them.
    const key_hash = new Uint8Array(32).fill(id.charCodeAt(0) % 4)
    const record = { key_hash, fingerprint: new Uint8Array(32) }
    const created = repository.insert(account_id, row, plainSealedKey(1), write === "create" ? undefined : record)
    return yield* Effect.match(created, {
      onFailure: ({ _tag }) => _tag !== "PoolFull" && assert.fail(_tag),
      onSuccess: Option.isSome
    })
  }
  if (write === "delete") return yield* repository.delete(account_id, id)
  if (write === "reorder") {
    const { credentials } = yield* repository.list(account_id, { workspace_id, provider, offset: 0, limit: 10 })
    const ids = credentials.toSorted((one, other) => other.sort_order - one.sort_order).map((one) => one.id)
    return ids.length > 1 && Option.isNone(yield* repository.reorder(account_id, { workspace_id, provider, ids }))
  }
  const found = yield* repository.findSealed(account_id, id)
  if (Option.isNone(found)) return false
  const { credential, key_version, revision } = found.value
  const changed = write === "rename" ? { name: crypto.randomUUID() } : { allowed_models: ["m".repeat(1500)] }
  const update = { revision, key_version, sealed: undefined, fields: ["name"] } as const
  const exit = yield* Effect.exit(
    repository.update(account_id, { ...update, credential: { ...credential, ...changed } })
  )
  return Exit.isSuccess(exit) && exit.value
})
