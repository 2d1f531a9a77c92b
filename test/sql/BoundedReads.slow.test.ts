import { randomUUID } from "node:crypto"
import { Context, Duration, Effect, Layer, Option, Schema } from "effect"
import * as Byok from "../../src/wiring/Byok.ts"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { AuditLog, countLimit } from "../../src/port/AuditLog.ts"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import {
  type AccountId,
  type ApiKeyHash,
  CredentialId,
  IdempotencyKey,
  type WorkspaceId
} from "../../src/domain/Identifiers.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { Readiness } from "../../src/port/Readiness.ts"
import { IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { WorkspaceResolver } from "../../src/port/AccountRepository.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { adminClient, migratedDatabase, settingsFor } from "../support/database/freshDatabase.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, describe, it } from "../support/it.ts"

const rows = 100_000
const keyring = generateKeyring(new Date())

/** Fills every table with many rows of one account, under a key-encryption key that no keyring has. */
const seed = (account_id: string, workspace_id: string) => [
  `INSERT INTO accounts SELECT gen_random_uuid(), 'n', now() FROM generate_series(1, ${rows})`,
  `INSERT INTO workspaces SELECT gen_random_uuid(), '${account_id}', 'n', false, now() FROM generate_series(1, ${rows})`,
  `INSERT INTO api_keys SELECT sha256(n::text::bytea), '${account_id}', 'n', 'ordinary', now(), now()
    FROM generate_series(1, ${rows}) AS n`,
  `INSERT INTO pools (account_id, workspace_id, provider) VALUES ('${account_id}', '${workspace_id}', 'openai')
    ON CONFLICT DO NOTHING`,
  `INSERT INTO credentials SELECT gen_random_uuid(), '${account_id}', '${workspace_id}', 'openai', NULL, '***...***',
    now(), false, false, false, false, NULL, NULL, NULL, NULL, NULL, n, 'lost',
    decode(repeat('00', 60), 'hex'), decode(repeat('00', 63), 'hex') FROM generate_series(1, ${rows}) AS n`,
  `INSERT INTO idempotency_records SELECT account_id, sha256(uuid_send(id)), id, sha256(''), now() - interval '26 hours'
    FROM credentials`,
  `INSERT INTO audit_entries (events) SELECT '[]' FROM generate_series(1, ${rows})`,
  `INSERT INTO audit_checkpoints SELECT coalesce(max(number), 0) + 1, (SELECT max(seq) FROM audit_entries), '', sha256('')
    FROM audit_checkpoints`,
  "VACUUM ANALYZE"
]

interface Account {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
  readonly hash: ApiKeyHash
}

/** Rows and index entries that were read from each table, once every connection of the service has reported. */
const readsOf = (url: string) =>
  Effect.gen(function* () {
    const sql = yield* adminClient(url)
    yield* eventually(
      "the service's connections are closed",
      Effect.map(
        sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
        ({ length }) => length === 0
      )
    )
    const found = yield* sql<{ name: string; n: number }>`
      SELECT relname AS name, (seq_tup_read + coalesce(idx_tup_fetch, 0) + (
        SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes AS index WHERE index.relid = tables.relid
      ))::int AS n
      FROM pg_stat_user_tables AS tables ORDER BY 1`
    return new Map(found.map(({ n, name }) => [name, n]))
  }).pipe(Effect.scoped)

/** How many were read from each table while an effect ran. */
const readBy = <A, E, R>(url: string, effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const before = yield* readsOf(url)
    yield* effect
    return Array.from(yield* readsOf(url), ([name, n]) => ({ name, n: n - (before.get(name) ?? 0) }))
  })

const serviceOn = (url: string) => Layer.build(Layer.fresh(Byok.layerWith(settingsFor(url, keyring))))

/** A round of everything that a serving process does. */
const serve = (url: string, { account_id, hash, workspace_id }: Account) =>
  Effect.gen(function* () {
    const instance = yield* serviceOn(url)
    const together = { concurrency: "unbounded" } as const
    yield* Effect.gen(function* () {
      const { create, get } = yield* Credentials
      const repository = yield* CredentialRepository
      const workspaces = yield* WorkspaceResolver
      const apiKeys = yield* ApiKeys
      const input = yield* Schema.decodeUnknownEffect(NewCredential)({ provider: "openai", key: "fake-key-fake-key" })
      const { id } = (yield* create(input)).credential
      yield* get(id)
      for (const _ of ["first", "again"]) yield* create(input, IdempotencyKey.make("k"))
      const ids = Array.from({ length: 20 }, () => CredentialId.make(randomUUID()))
      const { credential, sealed } = Option.getOrThrow(yield* repository.findSealed(account_id, id))
      yield* Effect.forEach(ids, (id) => repository.insert(account_id, { ...credential, id }, sealed), together)
      yield* Effect.forEach(ids, (id) => repository.findById(account_id, id), together)
      yield* Effect.forEach(ids, () => apiKeys.find(hash), together)
      yield* apiKeys.ownedBy(account_id, [hash])
      const wanted = [workspace_id, undefined, workspace_id, undefined]
      yield* Effect.forEach(wanted, (one) => workspaces.resolve(account_id, one), together)
      const readiness = yield* Readiness
      assert.deepStrictEqual(yield* readiness.problems, [])
      assert.include((yield* readiness.warnings).join(), "cannot be opened: more than 10,000")
      yield* (yield* IdempotencyRecords).deleteOlderThan(Duration.hours(25), 500)
      const log = yield* AuditLog
      yield* log.seal(0)
      yield* log.countUnsealed(countLimit + 1)
      const lost = (yield* (yield* KekRegistry).list).find(({ kek_id }) => kek_id === "lost")
      assert.deepInclude(lost ?? {}, { credentials: countLimit, more_credentials: true })
      const accounts = yield* Accounts
      assert.isFalse(yield* accounts.isEmpty)
      yield* accounts.requireAccount(account_id)
      yield* accounts.listApiKeys(account_id)
      yield* accounts.listClientKeys(account_id)
      yield* accounts.listWorkspaces(account_id)
      yield* accounts.revokeApiKey(hash, account_id)
      yield* accounts.deleteWorkspace((yield* accounts.createWorkspace(account_id, "n")).workspace_id, account_id)
    }).pipe(Effect.provide(instance), Effect.provideService(CurrentPrincipal, { kind: "in_process", account_id }))
  }).pipe(Effect.scoped)

describe("the statements of a serving process", () => {
  it.live(
    "read a bounded number of rows from each table, however many rows it has",
    function* () {
      const url = yield* migratedDatabase
      const made = yield* Effect.scoped(
        Effect.gen(function* () {
          const accounts = Context.get(yield* serviceOn(url), Accounts)
          const { account_id, management_key_hash, workspace_id } = yield* accounts.createAccount("n")
          const sql = yield* adminClient(url)
          for (const statement of seed(account_id, workspace_id)) yield* sql.unsafe(statement)
          return { account_id, workspace_id, hash: management_key_hash }
        })
      )
      const read = yield* readBy(url, serve(url, made))
      assert.includeMembers(
        read.map(({ name }) => name),
        ["accounts", "api_keys", "audit_entries", "credentials", "idempotency_records", "workspaces"]
      )
      assert.deepStrictEqual(
        read.filter(({ n }) => n > rows / 2),
        []
      )

      const counted = Effect.scoped(Effect.flatMap(adminClient(url), (sql) => sql`SELECT count(*) FROM workspaces`))
      const control = yield* readBy(url, counted)
      assert.isAtLeast(control.find(({ name }) => name === "workspaces")?.n ?? 0, rows, "control")
    },
    120_000
  )
})
