import { NodeCrypto } from "@effect/platform-node"
import { Arbitrary, DateTime, Effect, Layer, Option, Schema } from "effect"
import { Credential } from "../../../src/domain/Credential.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { AccountRepository, WorkspaceResolver } from "../../../src/port/AccountRepository.ts"
import { ApiKeys } from "../../../src/port/ApiKeys.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { elementOf, integer, oneOf } from "../../support/memory/arbitraries.ts"
import * as CipherPlain from "../../support/keys/CipherPlain.ts"
import * as MemoryStore from "../../support/memory/Memory.ts"
import { type ApiKeyRow, Memory } from "../../support/memory/Memory.ts"
import { addApiKey, addWorkspace, newTenant } from "../../support/database/newTenant.ts"
import { create as createAs, get as getAs } from "../../support/service/asTenant.ts"
import { assert, describe, it } from "../../support/it.ts"

/** Tenants, workspaces, keys and credentials are named by position, modulo how many there are of them, of whichever tenant. */
const position = integer(0, 23)
const tenant = integer(0, 3)

type Command =
  | {
      readonly _tag: "Create"
      readonly tenant: number
      readonly provider: string
      readonly workspace: number | undefined
      readonly hashes: ReadonlyArray<number>
    }
  | { readonly _tag: "Get"; readonly tenant: number; readonly credential: number }
  | { readonly _tag: "AddWorkspace" | "AddKey"; readonly tenant: number }
  | { readonly _tag: "DeleteWorkspace"; readonly workspace: number }
  | { readonly _tag: "RevokeKey"; readonly key: number }

const create = Arbitrary.map(
  Arbitrary.all({
    tenant,
    provider: elementOf(["openai", "cohere"]),
    workspace: oneOf<number | undefined>(Arbitrary.Constant(undefined), position),
    hashes: Arbitrary.array(position, { maxLength: 2 })
  }),
  (given): Command => ({ _tag: "Create", ...given })
)
const get = Arbitrary.map(Arbitrary.all({ tenant, credential: position }), (given): Command => ({
  _tag: "Get",
  ...given
}))
const others = oneOf<Command>(
  Arbitrary.map(tenant, (tenant): Command => ({ _tag: "AddWorkspace", tenant })),
  Arbitrary.map(tenant, (tenant): Command => ({ _tag: "AddKey", tenant })),
  Arbitrary.map(position, (workspace): Command => ({ _tag: "DeleteWorkspace", workspace })),
  Arbitrary.map(position, (key): Command => ({ _tag: "RevokeKey", key }))
)
const history = Arbitrary.all({
  tenants: integer(2, 4),
  commands: Arbitrary.array(oneOf(create, create, get, get, others), { maxLength: 40 })
})
type History = typeof history extends Arbitrary.Arbitrary<infer A> ? A : never

/** The model: who owns what, and what has been removed. */
interface Model {
  readonly tenants: ReadonlyArray<AccountId>
  readonly workspaces: Array<{
    readonly id: WorkspaceId
    readonly owner: AccountId
    readonly first: boolean
    live: boolean
  }>
  readonly keys: Array<{ readonly hash: ApiKeyHash; readonly owner: AccountId; live: boolean }>
  readonly credentials: Array<{ readonly id: CredentialId; readonly owner: AccountId; readonly data: object }>
}

const at = <A>(items: ReadonlyArray<A>, index: number): A => items[index % items.length] ?? assert.fail("nothing there")
const encode = Schema.encodeSync(Credential)

const isOwn = (owner: AccountId) => (one: { readonly owner: AccountId; readonly live: boolean }) =>
  one.live && one.owner === owner

const stillTrue = Effect.fnUntraced(function* (model: Model, command: Command) {
  const repository = yield* AccountRepository
  const now = yield* DateTime.now
  switch (command._tag) {
    case "Create": {
      const account_id = at(model.tenants, command.tenant)
      const workspace =
        command.workspace === undefined
          ? model.workspaces.find(({ first, owner }) => first && owner === account_id)
          : at(model.workspaces, command.workspace)
      const keys = command.hashes.map((index) => at(model.keys, index))
      const allowed = workspace !== undefined && [workspace, ...keys].every(isOwn(account_id))
      const body = {
        provider: command.provider,
        ...(command.workspace === undefined ? {} : { workspace_id: workspace?.id }),
        allowed_api_key_hashes: keys.length === 0 ? null : keys.map(({ hash }) => hash)
      }
      const created = yield* Effect.option(createAs({ account_id }, body))
      if (Option.isNone(created)) return !allowed
      const { id, workspace_id } = created.value
      model.credentials.push({ id, owner: account_id, data: encode(created.value) })
      return allowed && workspace_id === workspace.id
    }
    case "Get": {
      if (model.credentials.length === 0) return true
      const account_id = at(model.tenants, command.tenant)
      const { data, id, owner } = at(model.credentials, command.credential)
      const found = yield* Effect.option(getAs({ account_id }, id))
      if (owner !== account_id) return Option.isNone(found)
      return Option.isSome(found) && JSON.stringify(encode(found.value)) === JSON.stringify(data)
    }
    case "AddWorkspace": {
      const owner = at(model.tenants, command.tenant)
      model.workspaces.push({ id: yield* addWorkspace(owner), owner, first: false, live: true })
      return true
    }
    case "AddKey": {
      const owner = at(model.tenants, command.tenant)
      model.keys.push({ hash: yield* addApiKey(owner), owner, live: true })
      return true
    }
    case "DeleteWorkspace": {
      const workspace = at(model.workspaces, command.workspace)
      yield* repository.deleteWorkspace(workspace.id, now)
      workspace.live = false
      return true
    }
    case "RevokeKey": {
      const key = at(model.keys, command.key)
      yield* repository.revokeApiKey(key.hash, now)
      key.live = false
      return true
    }
  }
})

/** Whether every answer in a history is the model's, and in the end every tenant has its own rows and no others. */
const isolated = Effect.fnUntraced(function* ({ commands, tenants }: History) {
  const made = yield* Effect.forEach(Array.from({ length: tenants }), () => newTenant)
  const model: Model = {
    tenants: made.map(({ account_id }) => account_id),
    workspaces: made.map(({ account_id, workspace_id }) => ({
      id: workspace_id,
      owner: account_id,
      first: true,
      live: true
    })),
    keys: made.map(({ account_id, hash }) => ({ hash, owner: account_id, live: true })),
    credentials: []
  }
  for (const command of commands) if (!(yield* stillTrue(model, command))) return false
  const { credentials } = yield* Memory
  const owners = Array.from(credentials, ([id, { account_id }]) => `${id} ${account_id}`)
  return (
    owners.toSorted().join() ===
    model.credentials
      .map(({ id, owner }) => `${id} ${owner}`)
      .toSorted()
      .join()
  )
})

type Ports = ApiKeys | CredentialRepository | WorkspaceResolver
const serviceWith = (ports: Layer.Layer<Ports, never, Memory>) =>
  Layer.fresh(
    CredentialsLive.layer.pipe(
      Layer.provide(ports),
      Layer.provide([
        CipherPlain.layer,
        MemoryStore.leakedKeys,
        MemoryStore.idempotencyRecords,
        NodeCrypto.layerSecureRandom
      ]),
      Layer.provideMerge(MemoryStore.accountRepository),
      Layer.provideMerge(Memory.layer)
    )
  )
const { apiKeys, credentialRepository, workspaceResolver } = MemoryStore
const honest = Layer.mergeAll(apiKeys, credentialRepository, workspaceResolver)

describe("two to four tenants in any interleaving (T6b)", () => {
  it.effect.prop(
    "never see, name or use anything foreign, revoked or deleted",
    [history],
    ([given]) => Effect.provide(isolated(given), serviceWith(honest)),
    { arbitrary: { size: 40, runs: 150 } }
  )

  /** Stores a credential in any workspace, where the honest one refuses: the service must not rely on that. */
  const withoutForeignKey = Layer.effect(
    CredentialRepository,
    Effect.map(Effect.all([CredentialRepository, Memory]), ([repository, { credentials }]) => ({
      ...repository,
      insert: (account_id, given, sealed) =>
        Effect.sync(() => {
          const credential = { ...given, created_at: DateTime.makeUnsafe(0), sort_order: 0 }
          credentials.set(given.id, { account_id, credential, sealed, revision: 1, key_version: 1 })
          return Option.some(credential)
        })
    }))
  ).pipe(Layer.provide(credentialRepository))

  /** Counts an API key as owned by a rule of its own. */
  const owning = (isOwned: (account_id: AccountId, key: ApiKeyRow) => boolean) =>
    Layer.effect(
      ApiKeys,
      Effect.map(Effect.all([ApiKeys, Memory]), ([keys, { apiKeys: stored }]) => ({
        ...keys,
        ownedBy: (account_id, hashes) =>
          Effect.sync(() => {
            const owned = Array.from(stored.values()).filter((key) => isOwned(account_id, key))
            return new Set(owned.map(({ hash }) => hash).filter((hash) => hashes.includes(hash)))
          })
      }))
    ).pipe(Layer.provideMerge(honest))

  type Resolve = WorkspaceResolver["Service"]["resolve"]
  /** Resolves workspaces by a rule of its own. */
  const resolving = (
    change: (resolve: Resolve, workspaces: Memory["Service"]["workspaces"]) => Resolve,
    repository = credentialRepository
  ) =>
    Layer.effect(
      WorkspaceResolver,
      Effect.map(Effect.all([WorkspaceResolver, Memory]), ([{ resolve }, { workspaces }]) => ({
        resolve: change(resolve, workspaces)
      }))
    ).pipe(Layer.provideMerge(Layer.mergeAll(apiKeys, workspaceResolver, repository)))

  type Row = Memory["Service"]["workspaces"] extends Map<WorkspaceId, infer A> ? A : never
  const firstOf = (workspaces: Memory["Service"]["workspaces"], isMeant: (row: Row) => boolean) =>
    Option.map(
      Option.fromUndefinedOr(Array.from(workspaces.values()).find(isMeant)),
      ({ workspace_id }) => workspace_id
    )

  const broken: ReadonlyArray<readonly [string, Layer.Layer<Ports, never, Memory>]> = [
    [
      "findById forgets the account",
      Layer.effect(
        CredentialRepository,
        Effect.map(Effect.all([CredentialRepository, Memory]), ([repository, { credentials }]) => ({
          ...repository,
          findById: (_account_id, id) =>
            Effect.sync(() => Option.map(Option.fromUndefinedOr(credentials.get(id)), ({ credential }) => credential))
        }))
      ).pipe(Layer.provideMerge(honest))
    ],
    ["ownedBy forgets the account", owning((_account_id, key) => key.revoked_at === null)],
    ["ownedBy forgets that keys are revoked", owning((account_id, key) => key.account_id === account_id)],
    [
      "resolve forgets the account",
      resolving(
        (resolve, workspaces) => (account_id, requested) =>
          Effect.suspend(() => {
            const row = requested === undefined ? undefined : workspaces.get(requested)
            return resolve(row?.account_id ?? account_id, requested)
          }),
        withoutForeignKey
      )
    ],
    [
      "resolve and insert forget that workspaces are deleted",
      resolving(
        (_resolve, workspaces) => (account_id, requested) =>
          Effect.sync(() =>
            firstOf(
              workspaces,
              (row) =>
                row.account_id === account_id &&
                (requested === undefined ? row.is_default : row.workspace_id === requested)
            )
          ),
        withoutForeignKey
      )
    ],
    [
      "another workspace steps in for a deleted default one (D43)",
      resolving(
        (resolve, workspaces) => (account_id, requested) =>
          Effect.map(resolve(account_id, requested), (found) =>
            Option.isSome(found) || requested !== undefined
              ? found
              : firstOf(workspaces, (row) => row.account_id === account_id && row.deleted_at === null)
          )
      )
    ]
  ]

  it.effect.each(broken)("detect a store in which %s (control)", function* ([, ports]) {
    const checked = yield* Arbitrary.checkEffect(
      history,
      (given) => Effect.provide(isolated(given), serviceWith(ports)),
      { size: 40, runs: 500, maxShrinks: 0 }
    )
    assert.strictEqual(checked._tag, "Falsified")
  })
})
