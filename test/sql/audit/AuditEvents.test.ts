import { randomUUID } from "node:crypto"
import { Arbitrary, DateTime, Effect, Exit, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import type { AuditEvent } from "../../../src/domain/AuditEvent.ts"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import { AccountId, ApiKeyHash, IdempotencyKey, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { NewCredential } from "../../../src/domain/NewCredential.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { Accounts } from "../../../src/service/accounts/Accounts.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import { assert, describe, it, layerLive } from "../../support/it.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { entriesIn, eventsIn } from "../../support/database/auditEntries.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { databaseContent } from "../../support/keys/leakSearch.ts"
import { openBehindProxy } from "../../support/database/lossyStore.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { rotationWith, sealUnder } from "../../support/keys/rotating.ts"
import { newHash, newTenant, newWorkspaceId } from "../../support/database/newTenant.ts"
import { type Ports, Store } from "../../support/database/stores.ts"
import { TestService } from "../../support/http/TestService.ts"

const decodeNew = Schema.decodeUnknownEffect(NewCredential)
const at = DateTime.makeUnsafe(0)

const credentialOf = (workspace_id: WorkspaceId, id?: string) => ({
  ...plainCredential(workspace_id, id),
  name: "canary of a name"
})

/** Stores an arbitrary credential. */
const insertCredential = (account_id: AccountId, workspace_id: WorkspaceId, id?: string) =>
  insertPlain(account_id, credentialOf(workspace_id, id), plainSealedKey())

/** Stores a credential with an idempotency record, of which the account may have one under each number. */
const insertWithRecord = (account_id: AccountId, workspace_id: WorkspaceId, number: number) =>
  Effect.flatMap(CredentialRepository, ({ insert }) =>
    insert(account_id, credentialOf(workspace_id), plainSealedKey(), {
      key_hash: new Uint8Array(32).fill(number),
      fingerprint: new Uint8Array(32)
    })
  )

/** The events that must exist, derived from what is stored, as action and ids. */
const derived = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ event: string }>`
      SELECT 'account.create ' || id AS event FROM accounts
      UNION ALL SELECT 'workspace.create ' || account_id || ' ' || id FROM workspaces
      UNION ALL SELECT 'workspace.delete ' || account_id || ' ' || id FROM workspaces WHERE deleted_at IS NOT NULL
      UNION ALL SELECT 'api_key.issue ' || account_id || ' ' || encode(hash, 'hex') || ' ' || role
        FROM api_keys
      UNION ALL SELECT 'api_key.revoke ' || account_id || ' ' || encode(hash, 'hex') FROM api_keys WHERE revoked_at IS NOT NULL
      UNION ALL SELECT 'credential.create ' || account_id || ' ' || workspace_id || ' ' || id || ' ' || provider || ' ' || label
        FROM credentials
      UNION ALL SELECT 'keyring.register ' || id FROM keks`,
    (rows) => rows.map(({ event }) => event).toSorted()
  )

const inWords = ({ actor: _, ...event }: AuditEvent) => Object.values(event).map(String).join(" ")

const kinds = ["account", "workspace", "delete", "issue", "revoke", "credential", "idempotent", "kek"] as const
const operation = Arbitrary.all({ kind: elementOf(kinds), one: integer(0, 2), other: integer(0, 3) })
const operations = Arbitrary.array(operation, { minLength: 1, maxLength: 25 })

type Operation = typeof operation extends Arbitrary.Arbitrary<infer A> ? A : never
/** Accounts to begin with, and every kind of act once. */
const oneOfEach: ReadonlyArray<Operation> = [
  ...[0, 1, 2].map((one) => ({ kind: "account" as const, one, other: one })),
  ...kinds.map((kind) => ({ kind, one: 0, other: kind === "credential" || kind === "idempotent" ? 0 : 3 })),
  { kind: "credential", one: 1, other: 1 }
]
interface Ids {
  readonly accounts: ReadonlyArray<AccountId>
  readonly workspaces: ReadonlyArray<WorkspaceId>
  readonly hashes: ReadonlyArray<ApiKeyHash>
  readonly credentials: ReadonlyArray<string>
}

const fresh = <A>(make: (text: string) => A) => Array.from({ length: 4 }, () => make(randomUUID()))
const newIds = (): Ids => ({
  accounts: fresh((text) => AccountId.make(text)),
  workspaces: fresh((text) => WorkspaceId.make(text)),
  hashes: fresh((text) => ApiKeyHash.make(text.replaceAll("-", "").repeat(2))),
  credentials: fresh((text) => text)
})
const pick = <A>(values: ReadonlyArray<A>, index: number): A => values[index] ?? assert.fail("no such id")

/** Some of these fail, are repeated, or name what does not exist, and must leave no event. */
const perform = (ids: Ids, { kind, one, other }: Operation) =>
  Effect.gen(function* () {
    const repository = yield* AccountRepository
    const { register } = yield* KekRegistry
    const account_id = pick(ids.accounts, one)
    const workspace_id = pick(ids.workspaces, other)
    const hash = pick(ids.hashes, other)
    const workspace = { workspace_id, name: "canary of a name", created_at: at }
    const key = {
      hash,
      name: "canary of a name",
      role: one === 0 ? ("management" as const) : ("ordinary" as const),
      created_at: at
    }
    switch (kind) {
      case "account":
        return yield* repository.createAccount({ account_id, name: "canary of a name" }, workspace, key)
      case "workspace":
        return yield* repository.createWorkspace(account_id, workspace)
      case "delete":
        return yield* repository.deleteWorkspace(workspace_id, at)
      case "issue":
        return yield* repository.addApiKey(account_id, key)
      case "revoke":
        return yield* repository.revokeApiKey(hash, at)
      case "credential":
        return yield* insertCredential(account_id, workspace_id, pick(ids.credentials, (one + other) % 4))
      case "idempotent":
        return yield* insertWithRecord(account_id, workspace_id, other)
      case "kek":
        return yield* register([{ kek_id: account_id, check_value: new Uint8Array(16).fill(other % 2) }])
    }
  })

layerLive(Store.layer)("operations", (it) => {
  it.effect("concurrent operations write one audit event for each stored change (SECURITY.md, Audit)", function* () {
    const { sql } = yield* Store
    const together = { concurrency: "unbounded", discard: true } as const
    const checked = yield* Arbitrary.checkEffect(
      operations,
      Effect.fnUntraced(function* (given) {
        const ids = newIds()
        yield* Effect.forEach(oneOfEach, (each) => Effect.exit(perform(ids, each)))
        yield* Effect.forEach(given, (each) => Effect.exit(perform(ids, each)), together)
        const events = (yield* eventsIn(sql)).map(inWords).toSorted()
        assert.deepStrictEqual(events, yield* derived(sql))
        return true
      }),
      { runs: 25, maxShrinks: 50 }
    )
    assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
    const actions = new Set((yield* eventsIn(sql)).map(({ action }) => action))
    assert.strictEqual(actions.size, 7, "every kind of act took place")
  })

  it.effect("an operation changes nothing if its audit event cannot be written (control)", () =>
    Effect.gen(function* () {
      const { sql } = yield* Store
      const { account_id, hash, workspace_id } = yield* newTenant
      yield* sealUnder(ringOf("old"), 3)
      yield* (yield* KekRegistry).register([{ kek_id: "new", check_value: new Uint8Array(16) }])
      const repository = yield* AccountRepository
      const { rewrap } = yield* rotationWith(ringOf("newer", "old"))
      const key = { hash: yield* newHash, name: "n", role: "management" as const, created_at: at }
      const workspace = { workspace_id: yield* newWorkspaceId, name: "n", created_at: at }
      const acts: ReadonlyArray<readonly [string, Effect.Effect<unknown, unknown, Ports>]> = [
        ["account.create", newTenant],
        ["workspace.create", repository.createWorkspace(account_id, workspace)],
        ["workspace.delete", repository.deleteWorkspace(workspace_id, at)],
        ["api_key.issue", repository.addApiKey(account_id, key)],
        ["api_key.revoke", repository.revokeApiKey(hash, at)],
        ["keyring.rewrap", rewrap({ rate: 1000 })],
        ["keyring.register", (yield* KekRegistry).register([{ kek_id: "k", check_value: new Uint8Array(16) }])]
      ]
      const { account_id: other, workspace_id: living } = yield* newTenant
      const five = Array.from({ length: 5 }, () => insertCredential(other, living))
      const creates = Effect.all(five.map(Effect.exit), { concurrency: "unbounded" }).pipe(
        Effect.flatMap((exits) => Exit.asVoidAll(exits))
      )
      const stored = Effect.map(databaseContent(sql), (content) =>
        content
          .replaceAll(/"wraps":\d+/g, "")
          .split("\n")
          .toSorted()
      )
      const recorded = Effect.suspend(() => insertWithRecord(other, living, 1))
      for (const [action, act] of [
        ...acts,
        ["credential.create", creates] as const,
        ["credential.create", recorded] as const
      ]) {
        yield* sql.unsafe(
          `ALTER TABLE audit_entries ADD CONSTRAINT broken CHECK (events::text NOT LIKE '%"${action}"%') NOT VALID`
        )
        const before = yield* stored
        assert.isTrue(Exit.isFailure(yield* Effect.exit(act)), action)
        assert.deepStrictEqual(yield* stored, before, action)
        yield* sql`ALTER TABLE audit_entries DROP CONSTRAINT broken`
        yield* act
        assert.notDeepEqual(yield* stored, before, action)
        assert.include(
          (yield* eventsIn(sql)).map((event): string => event.action),
          action
        )
      }
    }).pipe(Effect.provide(Store.layer))
  )
})

describe("an audit entry (SECURITY.md, Audit)", () => {
  it.live("counts the credentials per old key for each batch of a rewrap", () =>
    Effect.gen(function* () {
      const { sql } = yield* Store
      yield* sealUnder(ringOf("old"), 5)
      yield* sealUnder(ringOf("__proto__"), 4)
      const { rewrap } = yield* rotationWith(ringOf("new", "old", "__proto__"))
      yield* rewrap({ rate: 1_000_000, batch: 3 })
      const batches = (yield* entriesIn(sql)).flatMap((events) =>
        events.flatMap((event) => (event.action === "keyring.rewrap" ? [event] : []))
      )
      assert.deepStrictEqual(
        batches.map(({ from }) => Object.values(from).reduce((sum, count) => sum + count, 0)),
        [3, 3, 3]
      )
      const total = (kek_id: string) => batches.reduce((sum, { from }) => sum + (from[kek_id] ?? 0), 0)
      assert.deepStrictEqual([total("old"), Object.keys(batches[0]?.from ?? {}).length > 0], [5, true])
      assert.isTrue(batches.every(({ kek_id }) => kek_id === "new"))
    }).pipe(Effect.provide(Store.layer))
  )
})

describe("an operation that is retried because its answer was lost", () => {
  it.live("writes one audit event (R3)", function* () {
    const { ports, proxy, sql } = yield* openBehindProxy
    yield* Effect.gen(function* () {
      const repository = yield* AccountRepository
      proxy.loseAnswer("COMMIT")
      const { account_id, hash, workspace_id } = yield* newTenant
      proxy.loseAnswer("SELECT 1")
      yield* insertCredential(account_id, workspace_id)
      for (const act of [
        repository.deleteWorkspace(workspace_id, at),
        repository.revokeApiKey(hash, at),
        repository.createWorkspace(account_id, { workspace_id: yield* newWorkspaceId, name: "n", created_at: at }),
        repository.addApiKey(account_id, { hash: yield* newHash, name: "n", role: "ordinary", created_at: at })
      ]) {
        proxy.loseAnswer("COMMIT")
        yield* act
      }
    }).pipe(Effect.provide(ports))
    assert.strictEqual(proxy.lost(), 6)
    const events = (yield* eventsIn(sql)).map(inWords).toSorted()
    assert.lengthOf(events, 8)
    assert.deepStrictEqual(events, yield* derived(sql))
  })
})

layerLive(TestService.layer)("the audit events of a running service", (it) => {
  it.effect("audit events name their actor: API key, command's user, gateway in process or service", function* () {
    const { sql } = yield* TestService
    const { account_id, create, management_key_hash } = yield* TestService.newTenant
    const credentials = yield* Credentials
    const input = { provider: "groq" as const, key: "fake-key-fake-key-fake-key" }
    yield* create(input)
    const { revokeApiKey } = yield* Accounts
    yield* Effect.provideService(revokeApiKey(management_key_hash), CurrentPrincipal, { kind: "cli", user: "sören" })
    assert.strictEqual((yield* create(input)).status, 401)
    const decoded = yield* decodeNew(input)
    yield* Effect.provideService(credentials.create(decoded), CurrentPrincipal, { kind: "in_process", account_id })
    const once = credentials.create(decoded, IdempotencyKey.make("k"))
    yield* Effect.provideService(once, CurrentPrincipal, { kind: "in_process", account_id })
    const events = yield* eventsIn(sql)
    assert.deepStrictEqual(
      events.filter((event) => "account_id" in event && event.account_id === account_id).map(({ actor }) => actor),
      [
        { kind: "service" },
        { kind: "service" },
        { kind: "service" },
        { kind: "api_key", api_key_hash: management_key_hash },
        { kind: "cli", user: "sören" },
        { kind: "in_process" },
        { kind: "in_process" }
      ]
    )
    assert.deepStrictEqual(events[0]?.action, "keyring.register")
  })
})
