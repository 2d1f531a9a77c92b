import { randomUUID } from "node:crypto"
import { DateTime, Duration, Effect, Option, Result } from "effect"
import { ApiKeyHash, CredentialId, LinkId } from "../../src/domain/Identifiers.ts"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import { useFromLease } from "../../src/domain/routing/LastUse.ts"
import { AuditLog } from "../../src/port/AuditLog.ts"
import { AccountRepository, WorkspaceResolver } from "../../src/port/AccountRepository.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { CredentialPools } from "../../src/port/CredentialPools.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { CredentialUse } from "../../src/port/CredentialUse.ts"
import { EventCursor } from "../../src/port/Events.ts"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import { LeakedKeys } from "../../src/port/LeakedKeys.ts"
import { LinkKeys, LinkRepository } from "../../src/port/Links.ts"
import { Parkings } from "../../src/port/Parkings.ts"
import { Readiness } from "../../src/port/Readiness.ts"
import { IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"

/**
 * Statements on all accounts at once: for the uses of key-encryption keys, old idempotency records, the number of keys that a leak
 * search covers, and commands on one workspace.
 */
export const onAllAccounts = [
  /^\s*SELECT count\(\*\)::int AS count FROM credentials$/,
  /^\s*SELECT min\(kek_id\) AS id FROM credentials/,
  /FROM credentials WHERE kek_id BETWEEN \$1 AND \$2/,
  /FROM credentials\s+WHERE kek_id = (ANY\()?\$1/,
  /FROM workspaces WHERE id = \$1$/
]

export const isDefinition = (text: string) => /^\s*(ALTER|CREATE|DROP|LOCK)\b/.test(text)

/** A use of every function of a port, in the order of their calls: a new function without one does not compile. */
type UsesOf<Port> = Readonly<Record<keyof Port, Effect.Effect<unknown, unknown>>>

/** Runs every statement of requests, commands and background work. */
export const usePorts = Effect.gen(function* () {
  const { create, get, ...tenant } = yield* TestService.newTenant
  const other = yield* TestService.newTenant
  const { account_id, management_key_hash, workspace_id } = tenant
  const repository = yield* CredentialRepository
  const accounts = yield* AccountRepository
  const records = yield* IdempotencyRecords
  const workspaces = yield* WorkspaceResolver
  const together = { concurrency: "unbounded" } as const

  const id = CredentialId.make(createdId(yield* create({ ...minimal, workspace_id })))
  yield* get(id)
  yield* create(minimal)
  for (const _ of ["first", "again"]) created(yield* create(minimal, [["Idempotency-Key", "k"]]))
  yield* repository.findById(account_id, id)
  const { credential, sealed } = Option.getOrThrow(yield* repository.findSealed(account_id, id))
  const more = [tenant, other, tenant, other].map((home) => ({ home, id: CredentialId.make(randomUUID()) }))
  yield* Effect.forEach(
    more,
    ({ home, id }) =>
      repository.insert(home.account_id, { ...credential, id, workspace_id: home.workspace_id }, sealed),
    together
  )
  yield* repository.insert(account_id, credential, sealed)
  yield* Effect.forEach(more, ({ home, id }) => repository.findById(home.account_id, id), together)
  yield* Effect.forEach(
    more,
    ({ home }, index) => workspaces.resolve(home.account_id, index < 2 ? home.workspace_id : undefined),
    together
  )
  yield* workspaces.resolve(account_id, undefined)
  const apiKeys = yield* ApiKeys
  yield* Effect.forEach(more, () => apiKeys.find(management_key_hash), together)
  yield* apiKeys.ownedBy(account_id, [management_key_hash])
  yield* records.deleteOlderThan(Duration.zero, 10)
  yield* (yield* Readiness).problems
  yield* (yield* Readiness).warnings
  yield* (yield* KekRegistry).countExcept([])
  yield* (yield* KekRegistry).retire("none")
  yield* (yield* KekRegistry).list
  yield* (yield* KekRegistry).live
  yield* (yield* KekRegistry).findNaming([sealed.kek_id], 10)
  yield* (yield* KekRegistry).rewrapBatch({ primary: "new", after: undefined, size: 10 }, ({ wrapped_dek }) =>
    Result.succeed({ kek_id: "new", wrapped_dek })
  )

  const key = { account_id, workspace_id, credential_id: id, key_version: 1 }
  const parkings: UsesOf<Parkings["Service"]> = {
    store: (yield* Parkings).store([{ ...key, model: "m", epoch: 0, cause: "rejected", strikes: 1, remaining: 1 }]),
    find: (yield* Parkings).find(account_id, [id])
  }
  const { clear, conclude, countCredentials, marked, scan } = yield* LeakedKeys
  const leakedKeys: UsesOf<LeakedKeys["Service"]> = {
    countCredentials,
    scan: scan({ after: undefined, labels: [credential.label] }),
    conclude: conclude({ keys: [key], searched: 1, park: true }),
    marked: marked(account_id, () => [credential.label]),
    clear: clear(account_id, id)
  }
  const { load, time, versions, versionsOfKey } = yield* CredentialPools
  const pools: UsesOf<CredentialPools["Service"]> = {
    time,
    versions: Effect.forEach(
      [tenant, other, { account_id }, { account_id: other.account_id }],
      (owner) => versions(owner, ["openai"]),
      together
    ),
    versionsOfKey: Effect.forEach(
      [{ api_key_hash: management_key_hash }, { api_key_hash: management_key_hash, workspace_id }],
      (key) => versionsOfKey(key, ["openai"]),
      together
    ),
    load: load(tenant, "openai")
  }
  const { find, store } = yield* CredentialUse
  const use = { account_id, credential_id: id, ...useFromLease(1) }
  const lastUse: UsesOf<CredentialUse["Service"]> = { store: store([use]), find: find(account_id, [id]) }
  const page = { workspace_id, provider: credential.provider, limit: 1 }
  const memory = { taken: 100_000, take: () => Effect.void }
  const credentials: UsesOf<CredentialRepository["Service"]> = {
    insert: repository.insert(account_id, credential, sealed),
    findById: repository.findById(account_id, id),
    findSealed: repository.findSealed(account_id, id),
    list: Effect.forEach(
      [{}, { memory }, { memory }],
      (shared) => repository.list(account_id, { ...page, offset: 0, ...shared }),
      together
    ),
    scan: repository.scan(account_id, { ...page, after: credential }),
    update: Effect.forEach([sealed, undefined], (sealed) =>
      repository.update(account_id, { credential, revision: 7, sealed, key_version: 1, fields: ["name"] })
    ),
    reorder: Effect.flatMap(repository.list(account_id, { ...page, offset: 0, limit: 100 }), ({ credentials }) =>
      repository.reorder(account_id, { ...page, ids: credentials.map(({ id }) => id).toReversed() })
    ),
    delete: repository.delete(account_id, id)
  }
  const created_at = yield* DateTime.now
  const link = {
    ...{ link_id: LinkId.make(randomUUID()), account_id, workspace_id, purpose: "connect" as const },
    ...{ provider: null, credential_id: null, return_url: null },
    ...{ created_at, expires_at: DateTime.add(created_at, { hours: 1 }) }
  }
  const hash = ApiKeyHash.make("07".repeat(32))
  const byLink = Effect.provideService(CurrentPrincipal, { kind: "link", ...link, hash, keys: null })
  const pair = yield* (yield* LinkKeys).make(link)
  const linked = yield* LinkRepository
  const links: UsesOf<LinkRepository["Service"]> = {
    insert: linked.insert(link, 3600, hash, pair),
    list: linked.list(account_id),
    find: linked.find(hash),
    accountAndWorkspaceNames: linked.accountAndWorkspaceNames(link),
    replaceHash: linked.replaceHash({ ...link, hash }, ApiKeyHash.make("08".repeat(32))),
    replaceKeys: Effect.andThen(
      linked.replaceKeys(link, { ...pair, public_key: pair.public_key.map((byte) => byte ^ 1) }),
      byLink(repository.insert(account_id, { ...credential, id: CredentialId.make(randomUUID()) }, sealed))
    ),
    revoke: linked.revoke(account_id, link.link_id),
    revokeAltered: linked.revokeAltered(link),
    deleteExpired: linked.deleteExpired
  }
  const { checkpointOf, checkpoints, countUnsealed, entries, find: findEntry, read, seal } = yield* AuditLog
  const log: UsesOf<AuditLog["Service"]> = {
    countUnsealed: countUnsealed(1),
    seal: seal(1000),
    checkpointOf: checkpointOf("07".repeat(32)),
    checkpoints: checkpoints(0n),
    entries: entries({ after: 0n, upTo: 10n }),
    find: findEntry(account_id, randomUUID()),
    read: Effect.forEach([{ before: 10 }, { after: 0, credential_id: id }], (page) =>
      read({ ...page, account_id, limit: 1 })
    )
  }
  const { advance, free, state, take } = yield* EventCursor
  const holder = randomUUID()
  const cursor: UsesOf<EventCursor["Service"]> = {
    take: take(holder),
    state,
    advance: advance(holder, { after: 1, done: 0 }),
    free: free(holder, true)
  }
  const home = { workspace_id, name: "n", created_at }
  const record = { hash: management_key_hash, name: "n", role: "management" as const, created_at }
  const uses: UsesOf<AccountRepository["Service"]> = {
    hasAccounts: accounts.hasAccounts,
    createAccount: accounts.createAccount({ account_id, name: "n" }, home, record),
    listAccounts: accounts.listAccounts(account_id, 1),
    createWorkspace: accounts.createWorkspace(account_id, home),
    listWorkspaces: accounts.listWorkspaces(account_id, undefined, 1),
    findWorkspace: accounts.findWorkspace(workspace_id),
    makeDefault: accounts.makeDefault(account_id, workspace_id),
    deleteWorkspace: Effect.forEach(["first", "again"], () => accounts.deleteWorkspace(workspace_id, created_at)),
    addApiKey: accounts.addApiKey(account_id, record),
    revokeApiKey: accounts.revokeApiKey(management_key_hash, created_at),
    listApiKeys: accounts.listApiKeys(account_id, undefined, 1),
    listClientKeys: accounts.listClientKeys(account_id, 1),
    exists: accounts.exists(account_id),
    eraseAccount: accounts.eraseAccount(account_id, created_at, 100)
  }
  const all = [leakedKeys, parkings, pools, lastUse, links, log, cursor, credentials, uses].flatMap((uses) =>
    Object.values(uses)
  )
  for (const use of all) yield* use
})
