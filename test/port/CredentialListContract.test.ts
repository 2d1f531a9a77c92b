import { randomUUID } from "node:crypto"
import { assert, type Vitest } from "@effect/vitest"
import { Arbitrary, DateTime, Effect, Schema } from "effect"
import { Credential } from "../../src/domain/Credential.ts"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Database } from "../../src/sql/connection/Database.ts"
import { elementOf, integer } from "../support/memory/arbitraries.ts"
import { addWorkspace, newTenant } from "../support/database/newTenant.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { databases, type StoredPorts } from "../support/database/stores.ts"
import { layerLive } from "../support/process/layerLive.ts"

const encode = Schema.encodeSync(Credential)

/** Where a credential of an account is put: in one of two workspaces, at one of a few times, for one of two providers. */
const placement = Arbitrary.all({
  workspace: elementOf([0, 1] as const),
  created_at: Arbitrary.map(integer(0, 3), (millis) => DateTime.makeUnsafe(millis)),
  provider: elementOf(["openai", "cohere"] as const)
})
/** With an `id` where a test depends on the order of ids, which are random otherwise. */
type Placement = (typeof placement extends Arbitrary.Arbitrary<infer A> ? A : never) & { readonly id?: CredentialId }

/** Stores credentials of a new account, and one of another account beside them. */
const storePlaced = Effect.fnUntraced(function* (given: ReadonlyArray<Placement>) {
  const { account_id, workspace_id } = yield* newTenant
  const stranger = yield* newTenant
  yield* insertPlain(stranger.account_id, plainCredential(stranger.workspace_id), plainSealedKey())
  const workspaces = [workspace_id, yield* addWorkspace(account_id)] as const
  const { sql } = (yield* Database).writes
  const rows = yield* Effect.forEach(given, ({ created_at, workspace, ...rest }) =>
    Effect.gen(function* () {
      const row = yield* insertPlain(
        account_id,
        { ...plainCredential(workspaces[workspace]), ...rest },
        plainSealedKey()
      )
      yield* sql`
        UPDATE credentials SET created_at = ${DateTime.toDate(created_at)}
        WHERE account_id = ${account_id} AND id = ${row.id}`
      return { ...row, created_at }
    })
  )
  return { account_id, workspaces, rows }
})

const places = Arbitrary.all({
  given: Arbitrary.array(placement, { maxLength: 12 }),
  limit: integer(1, 5),
  provider: elementOf(["openai", "cohere", undefined] as const),
  workspace: elementOf([0, 1] as const)
})
interface Places extends Omit<typeof places extends Arbitrary.Arbitrary<infer A> ? A : never, "given"> {
  readonly given: ReadonlyArray<Placement>
}

/** The pages up to the first one that is not full. */
const pagesOf = Effect.fnUntraced(function* <E, R>(
  limit: number,
  read: (found: ReadonlyArray<Credential>) => Effect.Effect<ReadonlyArray<Credential>, E, R>
) {
  const found: Array<Credential> = []
  for (let page = yield* read(found); ; page = yield* read(found)) {
    assert.isAtMost(page.length, limit)
    found.push(...page)
    if (page.length < limit) return found
  }
})

/**
 * Whether pages of any limit partition the credentials of a workspace in one order, and every page counts all of them; and
 * whether parts of any size do so with all credentials of the account.
 */
const partition = Effect.fnUntraced(function* ({ given, limit, provider, workspace }: Places) {
  const { list, scan } = yield* CredentialRepository
  const { account_id, rows, workspaces } = yield* storePlaced(given)
  const placeOf = (one: Credential) => `${one.workspace_id} ${DateTime.formatIso(one.created_at)} ${one.id}`
  const inOrder = (workspace_id?: Credential["workspace_id"]) =>
    rows
      .filter(
        (row) => (workspace_id ?? row.workspace_id) === row.workspace_id && (provider ?? row.provider) === row.provider
      )
      .toSorted((one, other) => (placeOf(one) < placeOf(other) ? -1 : 1))
  const isSame = (found: ReadonlyArray<Credential>, expected: ReadonlyArray<Credential>) =>
    JSON.stringify(found.map((one) => encode(one))) === JSON.stringify(expected.map((one) => encode(one)))

  const workspace_id = workspaces[workspace]
  const expected = inOrder(workspace_id)
  const counts = new Set<number>()
  const listed = yield* pagesOf(limit, ({ length: offset }) =>
    Effect.map(list(account_id, { workspace_id, provider, offset, limit }), ({ credentials, total_count }) => {
      counts.add(total_count)
      return credentials
    })
  )
  const [inWorkspace, inAll] = yield* Effect.forEach([workspace_id, undefined], (workspace_id) =>
    pagesOf(limit, (found) => scan(account_id, { workspace_id, provider, after: found.at(-1), limit }))
  )
  return (
    isSame(listed, expected) &&
    isSame(inWorkspace ?? [], expected) &&
    isSame(inAll ?? [], inOrder()) &&
    [...counts].join() === String(expected.length)
  )
})

const listing = (it: Vitest.MethodsNonLive<StoredPorts>) => {
  it.effect.prop(
    "pages of any limit partition the credentials in one order, and each counts them all (L4)",
    [places],
    ([given]) => Effect.map(partition(given), (isRight) => assert.isTrue(isRight)),
    { arbitrary: { runs: 25 } }
  )

  const wrong: ReadonlyArray<readonly [string, (list: Listing, ...given: Parameters<Listing>) => ReturnType<Listing>]> =
    [
      [
        "counts the page instead of all",
        (list, ...given) =>
          Effect.map(list(...given), ({ credentials }) => ({ credentials, total_count: credentials.length }))
      ],
      [
        "ignores the offset",
        (list, account_id, page) => list(account_id, { ...page, offset: 0, limit: page.limit - 1 })
      ],
      ["ignores the provider", (list, account_id, page) => list(account_id, { ...page, provider: undefined })],
      [
        "orders by id alone",
        (list, ...given) =>
          Effect.map(list(...given), ({ credentials, total_count }) => ({
            credentials: credentials.toSorted((one, other) => (one.id < other.id ? -1 : 1)),
            total_count
          }))
      ]
    ]
  type Listing = CredentialRepository["Service"]["list"]
  it.effect.each(wrong)("a list that %s would be found (L4, control)", ([, change]) =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const broken = {
        ...repository,
        list: (...given: Parameters<Listing>) => change(repository.list, ...given)
      }
      const seen = yield* Effect.forEach([2, 5], (limit) => {
        // The ids are in another order than the times.
        const given = [3, 2, 1, 0, 1].map((millis, index) => ({
          id: CredentialId.make(`${index}${randomUUID().slice(1)}`),
          workspace: 0 as const,
          created_at: DateTime.makeUnsafe(millis),
          provider: index === 0 ? ("cohere" as const) : ("openai" as const)
        }))
        return Effect.provideService(
          partition({ given, limit, provider: "openai", workspace: 0 }),
          CredentialRepository,
          broken
        )
      })
      assert.include(seen, false)
    })
  )

  it.effect(
    "a list does not cross accounts, even for a workspace that is known, nor shows what is deleted (T6, L11)",
    () =>
      Effect.gen(function* () {
        const { delete: remove, insert, list } = yield* CredentialRepository
        const [owner, stranger] = [yield* newTenant, yield* newTenant]
        yield* insert(owner.account_id, plainCredential(owner.workspace_id), plainSealedKey())
        const page = { workspace_id: owner.workspace_id, provider: undefined, offset: 0, limit: 100 }
        assert.deepStrictEqual(yield* list(stranger.account_id, page), { credentials: [], total_count: 0 })
        const { credentials, total_count } = yield* list(owner.account_id, page)
        assert.strictEqual(total_count, 1)
        for (const { id } of credentials) yield* remove(owner.account_id, id)
        assert.deepStrictEqual(yield* list(owner.account_id, page), { credentials: [], total_count: 0 })
      })
  )
}

for (const [name, store] of databases) layerLive(store)(`a list of credentials ${name}`, listing)
