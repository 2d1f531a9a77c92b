import { createHash, randomUUID } from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import { Arbitrary, Cause, Context, DateTime, Effect, Exit, Layer, Option } from "effect"
import { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { ApiKeyRole } from "../../src/domain/Principal.ts"
import type { Provider } from "../../src/domain/Provider.ts"
import { useFromLease, useFromOutcome } from "../../src/domain/routing/LastUse.ts"
import { AccountRepository, WorkspaceResolver } from "../../src/port/AccountRepository.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { CredentialUse } from "../../src/port/CredentialUse.ts"
import { type IdempotencyRecord, IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { Database } from "../../src/sql/connection/Database.ts"
import { database, type Ports } from "../support/database/stores.ts"
import { elementOf, integer, sealedKey, storedCredential } from "../support/memory/arbitraries.ts"
import * as MemoryStore from "../support/memory/Memory.ts"
import { Memory } from "../support/memory/Memory.ts"
import { assert, layerLive } from "../support/it.ts"

/** The arguments of a command: positions of existing things, and new values. */
const given = Arbitrary.all({
  account: integer(0, 2),
  workspace: integer(0, 5),
  key: integer(0, 5),
  credential: integer(0, 8),
  /** In milliseconds since 1970, so that many things happen at the same time. */
  at: integer(0, 3),
  n: integer(0, 3),
  content: storedCredential,
  sealed: sealedKey
})

type Given = typeof given extends Arbitrary.Arbitrary<infer A> ? A : never

const ids = (count: number) => Array.from({ length: count }, () => randomUUID())
/** Accounts by position; workspaces, keys and credentials of the account at the remainder of theirs by three. */
const newNames = () => ({
  accounts: ids(3).map((id) => AccountId.make(id)),
  workspaces: ids(6).map((id) => WorkspaceId.make(id)),
  hashes: ids(6).map((id) => ApiKeyHash.make(createHash("sha256").update(id).digest("hex"))),
  credentials: ids(9).map((id) => CredentialId.make(id)),
  /** The idempotency record with which each credential was stored, if it had one. */
  records: new Map<CredentialId, IdempotencyRecord | undefined>()
})
const at = <A>(items: ReadonlyArray<A>, index: number): A => items[index % items.length] ?? assert.fail("nothing there")

/** As many as a create may name, with those of an account. */
const among = (hashes: ReadonlyArray<ApiKeyHash>) => [
  ...Array.from({ length: 100 - hashes.length }, (_, n) => ApiKeyHash.make(String(n).padStart(64, "0"))),
  ...hashes
]
const otherBytes = (bytes: Uint8Array) => bytes.map((byte) => byte + 100)

/** The arguments of the ports for a command. */
const inWords = (names: ReturnType<typeof newNames>, drawn: Given) => {
  const { account, content, credential, key, n, workspace } = drawn
  const created_at = DateTime.makeUnsafe(drawn.at)
  const provider: Provider = at(["openai", "cohere"], n)
  const key_hash = new Uint8Array(32).fill(key)
  return {
    ...{ n, created_at, provider, key_hash, sealed: drawn.sealed, hashes: names.hashes, records: names.records },
    account_id: at(names.accounts, account),
    first: { workspace_id: at(names.workspaces, account), hash: at(names.hashes, account) },
    workspace: { owner: at(names.accounts, workspace), id: at(names.workspaces, workspace) },
    key: { hash: at(names.hashes, key), name: `key ${n}`, role: at(ApiKeyRole.literals, n), created_at },
    id: at(names.credentials, credential),
    owner: at(names.accounts, credential),
    elsewhere: at(names.credentials, credential + 1),
    /** Mostly in a workspace of its account. */
    credential: {
      ...content,
      provider,
      id: at(names.credentials, credential),
      workspace_id: at(names.workspaces, n === 3 ? workspace : credential + 3 * (n % 2))
    }
  }
}
type Ask = (words: ReturnType<typeof inWords>) => Effect.Effect<unknown, unknown, Ports | Dates>

/** Changes the creation time of a stored credential. */
class Dates extends Context.Service<
  Dates,
  { readonly set: (id: CredentialId, created_at: DateTime.Utc) => Effect.Effect<void> }
>()("byok/test/Dates") {}

const storedOf = (owner: AccountId, id: CredentialId) =>
  CredentialRepository.use(({ findSealed }) => findSealed(owner, id))

/** Acts twice: the second call returns the time of the first. */
const twice = <A, E>(act: (time: DateTime.Utc) => Effect.Effect<A, E>, time: DateTime.Utc) =>
  Effect.forEach([time, DateTime.add(time, { milliseconds: 1 })], act)

/** Erases an account in steps, which shut it from the first one on, and answers how much that was. */
const erase: Ask = ({ account_id, created_at, first, n }) =>
  Effect.gen(function* () {
    const limit = n + 1
    let [credentials, records] = [0, 0]
    for (;;) {
      const step = Option.getOrUndefined(
        yield* AccountRepository.use(({ eraseAccount }) => eraseAccount(account_id, created_at, limit))
      )
      if (step === undefined) return "no account"
      assert.isAtMost(step.credentials + step.idempotency_records, limit)
      ;[credentials, records] = [credentials + step.credentials, records + step.idempotency_records]
      if (step.done) return [credentials, records]
      const key = yield* ApiKeys.use(({ ownedBy }) => ownedBy(account_id, [first.hash]))
      const workspace = yield* WorkspaceResolver.use(({ resolve }) => resolve(account_id, undefined))
      assert.deepStrictEqual([key.size, workspace], [0, Option.none()], "refused from the first step on")
    }
  })

const writes: Readonly<Record<string, Ask>> = {
  createAccount: ({ account_id, created_at, first: { hash, workspace_id }, key, n }) =>
    AccountRepository.use(({ createAccount }) =>
      createAccount(
        { account_id, name: `account ${n % 2}` },
        { workspace_id, name: "default", created_at },
        n === 0 ? key : { hash, name: "first", role: "management", created_at }
      )
    ),
  createWorkspace: ({ created_at, n, workspace }) =>
    AccountRepository.use(({ createWorkspace }) =>
      createWorkspace(workspace.owner, { workspace_id: workspace.id, name: `workspace ${n}`, created_at })
    ),
  makeDefault: ({ account_id, workspace }) =>
    AccountRepository.use(({ makeDefault }) => makeDefault(account_id, workspace.id)),
  deleteWorkspace: ({ created_at, workspace }) =>
    AccountRepository.use(({ deleteWorkspace }) => twice((time) => deleteWorkspace(workspace.id, time), created_at)),
  addApiKey: ({ account_id, key }) => AccountRepository.use(({ addApiKey }) => addApiKey(account_id, key)),
  revokeApiKey: ({ created_at, key }) =>
    AccountRepository.use(({ revokeApiKey }) => twice((time) => revokeApiKey(key.hash, time), created_at)),
  eraseAccount: erase,
  insert: ({ created_at, credential, id, key_hash, n, owner, records, sealed }) =>
    Effect.gen(function* () {
      if (records.has(id)) return
      // Which of two reasons refuses a credential is no law: one without a workspace has a record of its own.
      const place = yield* WorkspaceResolver.use(({ resolve }) => resolve(owner, credential.workspace_id))
      const unused = Option.isSome(place) ? key_hash : otherBytes(key_hash)
      const record = n === 0 ? undefined : { key_hash: unused, fingerprint: new Uint8Array(32).fill(n) }
      yield* CredentialRepository.use(({ insert }) => insert(owner, credential, sealed, record))
      records.set(id, record)
      yield* Dates.use(({ set }) => set(id, created_at))
    }),
  /** As it was, or under the id of another key. */
  insertAgain: ({ id, n, owner, records }) =>
    Effect.flatMap(
      storedOf(owner, id),
      Option.match({
        onNone: () => Effect.void,
        onSome: ({ credential, sealed }) =>
          Effect.gen(function* () {
            const other = { wrapped_dek: otherBytes(sealed.wrapped_dek), sealed: otherBytes(sealed.sealed) }
            // Which of two reasons refuses a credential is no law: another key in a deleted workspace has both.
            const place = yield* WorkspaceResolver.use(({ resolve }) => resolve(owner, credential.workspace_id))
            const again = { ...sealed, ...(n === 3 && Option.isSome(place) ? other : {}) }
            return yield* CredentialRepository.use(({ insert }) => insert(owner, credential, again, records.get(id)))
          })
      })
    ),
  update: ({ account_id, created_at, credential: changed, id, n, owner, sealed }) =>
    Effect.flatMap(
      storedOf(owner, id),
      Option.match({
        onNone: () => Effect.void,
        onSome: ({ credential: { provider, sort_order, workspace_id }, key_version, revision }) =>
          CredentialRepository.use(({ update }) =>
            update(n === 2 ? account_id : owner, {
              // No update changes these.
              credential: { ...changed, provider, workspace_id, created_at, sort_order: sort_order + 7 },
              revision: n === 3 ? revision - 1 : revision,
              sealed: n === 0 ? undefined : sealed,
              key_version: n === 0 ? key_version : key_version + 1,
              fields: n === 0 ? ["name"] : ["name", "key"]
            })
          )
      })
    ),
  delete: ({ account_id, id, n, owner }) =>
    CredentialRepository.use((repository) => repository.delete(n === 0 ? account_id : owner, id)),
  reorder: ({ account_id, elsewhere, n, provider, workspace: { id: workspace_id } }) =>
    CredentialRepository.use(({ list, reorder }) =>
      Effect.flatMap(list(account_id, { workspace_id, provider, offset: 0, limit: 100 }), ({ credentials }) => {
        const [one, ...others] = credentials.map(({ id }) => id).toReversed()
        const all = one === undefined ? [] : [...others, one]
        const asked = n === 0 ? others : n === 1 && !all.includes(elsewhere) ? [...all, elsewhere] : all
        return reorder(account_id, { workspace_id, provider, ids: asked })
      })
    ),
  storeUse: ({ account_id, created_at, id, n, owner }) =>
    CredentialUse.use(({ store }) => {
      const moment = created_at.epochMilliseconds
      const outcome = { _tag: at(["Succeeded", "Rejected", "Forbidden"] as const, n) } as const
      const use = n === 3 ? useFromLease(moment) : useFromOutcome(outcome, moment, n + 1)
      const key = { account_id: n === 2 ? account_id : owner, credential_id: id }
      return store([{ ...key, ...use }])
    })
}

const reads: Readonly<Record<string, Ask>> = {
  hasAccounts: () => AccountRepository.use(({ hasAccounts }) => hasAccounts),
  listAccounts: ({ account_id, n }) =>
    Effect.map(
      AccountRepository.use(({ listAccounts }) => listAccounts(n === 0 ? undefined : account_id, n + 1)),
      (found) => found.map(({ account_id, created_at, name }) => [account_id, created_at, name])
    ),
  listWorkspaces: ({ account_id, n, workspace }) =>
    AccountRepository.use(({ listWorkspaces }) =>
      listWorkspaces(account_id, n === 0 ? undefined : workspace.id, n + 1)
    ),
  findWorkspace: ({ workspace }) => AccountRepository.use(({ findWorkspace }) => findWorkspace(workspace.id)),
  listApiKeys: ({ account_id, key, n }) =>
    AccountRepository.use(({ listApiKeys }) => listApiKeys(account_id, n === 0 ? undefined : key.hash, n + 1)),
  listClientKeys: ({ account_id, n }) =>
    AccountRepository.use(({ listClientKeys }) => listClientKeys(account_id, n + 1)),
  exists: ({ account_id }) => AccountRepository.use(({ exists }) => exists(account_id)),
  resolve: ({ account_id, n, workspace }) =>
    WorkspaceResolver.use(({ resolve }) => resolve(account_id, n === 0 ? undefined : workspace.id)),
  findKey: ({ key }) =>
    Effect.map(
      ApiKeys.use(({ find }) => find(key.hash)),
      Option.map(({ account_id, role }) => ({ account_id, role }))
    ),
  ownedBy: ({ account_id, hashes, n }) => ApiKeys.use(({ ownedBy }) => ownedBy(account_id, among(hashes.slice(n)))),
  findById: ({ account_id, id }) => CredentialRepository.use(({ findById }) => findById(account_id, id)),
  findOwn: ({ id, owner }) => CredentialRepository.use(({ findById }) => findById(owner, id)),
  findSealed: ({ account_id, id, n, owner }) => storedOf(n === 0 ? account_id : owner, id),
  list: ({ account_id, created_at, n, provider, workspace }) =>
    CredentialRepository.use(({ list }) => {
      const offset = created_at.epochMilliseconds
      return list(account_id, { workspace_id: workspace.id, ...(n === 3 ? {} : { provider }), offset, limit: n + 1 })
    }),
  scan: ({ account_id, id, n, provider, workspace }) =>
    CredentialRepository.use(({ findById, scan }) =>
      Effect.gen(function* () {
        const after = Option.getOrUndefined(yield* findById(account_id, id))
        const place = { workspace_id: n > 1 ? undefined : workspace.id, provider: n === 1 ? provider : undefined }
        const found = yield* scan(account_id, { ...place, after, limit: n + 2 })
        return found.map(({ state: _, ...credential }) => credential)
      })
    ),
  findRecord: ({ account_id, key_hash, n }) =>
    Effect.map(
      IdempotencyRecords.use(({ find }) => find(account_id, n === 0 ? otherBytes(key_hash) : key_hash)),
      Option.map(({ credential_id, fingerprint }) => ({ credential_id, fingerprint }))
    ),
  findUse: ({ account_id, id }) =>
    CredentialUse.use(({ find }) => Effect.map(find(account_id, [id]), (found) => Array.from(found)))
}

const question = Arbitrary.all({ name: elementOf(Object.keys(reads)), given })
/** Commands one after the other, each with questions that are asked at once when it is done. */
const history = Arbitrary.array(
  Arbitrary.all({
    name: elementOf([...Object.keys(writes), ...["insert", "insert", "insert", "createWorkspace", "addApiKey"]]),
    given,
    questions: Arbitrary.array(question, { maxLength: 6 })
  }),
  { minLength: 1, maxLength: 30 }
)
type History = typeof history extends Arbitrary.Arbitrary<infer A> ? A : never

/** An answer as plain comparable data. */
const plain = (value: unknown): unknown => {
  if (Option.isOption(value)) return Option.getOrNull(Option.map(value, plain))
  if (DateTime.isDateTime(value)) return value.epochMilliseconds
  if (value instanceof Uint8Array) return Buffer.from(value).toString("hex")
  if (value instanceof Set) return Array.from(value).sort()
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== "object" || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]))
}

/** The answer, the tag of its error, or the mark of a defect. */
const answerOf = (ask: ReturnType<Ask>) =>
  Effect.map(Effect.exit(ask), (exit) => {
    if (Exit.isSuccess(exit)) return plain(exit.value)
    const error = Cause.findErrorOption(exit.cause)
    return Option.match(error, {
      onNone: () => "defect",
      onSome: (error) => String(Reflect.get(Object(error), "_tag"))
    })
  })

/** Enough questions of each kind to reach everything; every fourth is about another account. */
const everything = (drawn: Given) =>
  Object.keys(reads).flatMap((name) =>
    Array.from({ length: 24 }, (_, i) => {
      const account = (i % 4 === 3 ? i + 1 : i) % 3
      const names = { account, workspace: i % 6, key: i % 6, credential: i % 9 }
      return { name, given: { ...drawn, ...names, at: i % 2, n: Math.floor(i / 6) } }
    })
  )

/** Every answer in a history, which asks everything in the end and leaves no account. */
const answersTo = Effect.fnUntraced(function* (commands: History, names: ReturnType<typeof newNames>) {
  const answers: Array<unknown> = []
  const drawn = commands[0]?.given ?? assert.fail("no command")
  const all = [
    ...commands,
    { name: "addApiKey", given: drawn, questions: everything(drawn) },
    ...[0, 1, 2].map((account) => ({ name: "eraseAccount", given: { ...drawn, account }, questions: [] }))
  ]
  for (const { given, name, questions } of all) {
    const asked = (from: Readonly<Record<string, Ask>>, name: string, given: Given) =>
      Effect.map(answerOf((from[name] ?? assert.fail(name))(inWords(names, given))), (answer) => [name, answer])
    const answer = yield* asked(writes, name, given)
    const asking = questions.map(({ given, name }) => asked(reads, name, given))
    answers.push([...answer, ...(yield* Effect.all(asking, { concurrency: "unbounded" }))])
  }
  return answers
})

/** A command with the questions that it is asked for. */
type Step = readonly [write: string, given: Partial<Given>, ...reads: ReadonlyArray<string>]

/** Two accounts, and three credentials of the first in two workspaces. */
const beginning: ReadonlyArray<Step> = [
  ["createAccount", { account: 0, n: 2 }],
  ["createAccount", { account: 1, n: 1 }],
  ["createWorkspace", { workspace: 3, at: 0 }],
  ["insert", { credential: 0, n: 2, key: 0, at: 3 }],
  ["insert", { credential: 6, n: 2, key: 1, at: 1 }],
  ["insert", { credential: 3, n: 2, key: 2, at: 2 }]
]
/** Histories that random commands seldom produce. */
const seldom: ReadonlyArray<Step> = [
  ...beginning,
  ["createAccount", { account: 0, key: 5, n: 0 }, "scan", "list", "listAccounts", "listWorkspaces"],
  ["createAccount", { account: 1, key: 5, n: 0 }, "listApiKeys"],
  ["insert", { credential: 4, n: 3, key: 1, workspace: 0 }, "findRecord"],
  ["insert", { credential: 7, n: 2, key: 0 }, "findRecord"],
  ["insert", { credential: 4, n: 1, key: 0 }, "findOwn", "findRecord"],
  ["insertAgain", { credential: 0, n: 0 }],
  ["insertAgain", { credential: 0, n: 3 }, "findSealed", "findById"],
  ["reorder", { account: 0, workspace: 0, n: 0 }],
  ["reorder", { account: 0, workspace: 3, credential: 0, n: 1 }],
  ["reorder", { account: 0, workspace: 0, n: 2 }, "findOwn"],
  ["update", { credential: 0, n: 3 }],
  ["update", { account: 1, credential: 0, n: 2 }],
  ["update", { credential: 0, n: 1 }, "findSealed"],
  ["storeUse", { account: 0, credential: 0, n: 0, at: 3 }],
  ["storeUse", { account: 0, credential: 0, n: 0, at: 1 }],
  ["storeUse", { account: 0, credential: 0, n: 3, at: 3 }],
  ["storeUse", { account: 0, credential: 0, n: 3, at: 1 }],
  ["storeUse", { account: 0, credential: 0, n: 2, at: 2 }],
  ["storeUse", { account: 0, credential: 0, n: 1, at: 1 }, "findUse"],
  ["storeUse", { account: 0, credential: 3, n: 3 }],
  ["storeUse", { account: 1, credential: 0, n: 2, at: 3 }, "findUse"],
  ["delete", { account: 1, credential: 0, n: 0 }],
  ["delete", { credential: 7, n: 1 }, "findOwn"],
  ["insert", { credential: 1, n: 2, key: 3 }, "findOwn"],
  ["addApiKey", { account: 0, key: 3, n: 1, at: 1 }],
  ["addApiKey", { account: 0, key: 3, n: 1, at: 2 }],
  ["addApiKey", { account: 0, key: 3, n: 2, at: 1 }],
  ["addApiKey", { account: 1, key: 3, n: 1, at: 1 }],
  ["addApiKey", { account: 1, key: 5, n: 1 }],
  ["revokeApiKey", { key: 3 }, "listApiKeys", "findKey", "ownedBy"],
  ["makeDefault", { account: 0, workspace: 3 }, "resolve", "listWorkspaces"],
  ["makeDefault", { account: 0, workspace: 1 }, "resolve"],
  ["deleteWorkspace", { workspace: 3 }, "resolve", "findWorkspace", "findSealed"],
  ["makeDefault", { account: 0, workspace: 3 }],
  ["eraseAccount", { account: 0, n: 0 }, "findUse", "findById"]
]
/** The steps as commands, with every question of the kinds that are named. */
const inSteps = (steps: ReadonlyArray<Step>, drawn: Given): History =>
  steps.map(([name, given, ...asked]) => ({
    name,
    given: { ...drawn, ...given },
    questions: asked.flatMap((name) => everything(drawn).filter((question) => question.name === name))
  }))

const inMemory = Layer.effect(
  Dates,
  Effect.map(Memory, ({ credentials }) => ({
    set: (id, created_at) =>
      Effect.sync(() => {
        const row = credentials.get(id)
        if (row !== undefined) credentials.set(id, { ...row, credential: { ...row.credential, created_at } })
      })
  }))
).pipe(Layer.provideMerge(MemoryStore.layer))

const onDatabase = Layer.effect(
  Dates,
  Effect.map(Database, ({ writes: { sql } }) => ({
    set: (id, created_at) =>
      Effect.orDie(sql`UPDATE credentials SET created_at = ${DateTime.toDate(created_at)} WHERE id = ${id}`)
  }))
)

const compare = Effect.fnUntraced(function* (commands: History) {
  const names = newNames()
  const answers = yield* answersTo(commands, names)
  const again = { ...names, records: new Map() }
  const expected = yield* Effect.provide(answersTo(commands, again), Layer.fresh(inMemory))
  const first = answers.findIndex((answer, index) => !isDeepStrictEqual(answer, expected[index]))
  const calls = commands.map(({ name }) => name).join(" ")
  assert.deepStrictEqual(answers.at(first), expected.at(first), calls)
})

layerLive(Layer.provideMerge(onDatabase, database))("a store on PostgreSQL", (it) => {
  it.effect.prop(
    "answers rare cases like the store in memory (D3, D5, D6, D24, D32, D40 to D43, L4, L9, L11, L13, L14, T6)",
    [given],
    ([drawn]) => compare(inSteps(seldom, drawn)),
    { arbitrary: { runs: 1, maxShrinks: 0 } }
  )

  it.effect.prop(
    "answers any sequence of writes and reads like the store in memory",
    [history],
    ([[first, ...commands]]) =>
      first === undefined ? Effect.void : compare([...inSteps(beginning, first.given), first, ...commands]),
    { arbitrary: { runs: 5, size: 30, maxShrinks: 20 } }
  )
})
