import { Effect } from "effect"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertHeaders, assertInvalid } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const key = "sk-0123456789-0123456789-AbCd"

interface Page {
  readonly data: ReadonlyArray<Readonly<Record<string, unknown>>>
  readonly total_count: number
}

/** The page that list answered with, which must have been accepted. */
const pageIn = (answer: Answer): Page => {
  assert.strictEqual(answer.status, 200, answer.body)
  assertHeaders(answer)
  const page = JSON.parse(answer.body) as Page
  assert.deepStrictEqual(Object.keys(page), ["data", "total_count"])
  return page
}
const namesIn = (answer: Answer) => pageIn(answer).data.map(({ name }) => name)

layerLive(TestService.layer)("GET /api/v1/byok", (it) => {
  it.effect("adds the status of each credential, equal to that of /status, only with include=status", function* () {
    const { sql } = yield* TestService
    const { account_id, create, list, send } = yield* TestService.newTenant
    const providers = ["openai", "cohere", "openai"]
    const ids = yield* Effect.forEach(providers, (provider) => Effect.map(create({ provider, key }), createdId))
    const [used = "", parked = "", failing = ""] = ids
    yield* sql`
        INSERT INTO credential_use (account_id, credential_id, last_leased_at) VALUES (${account_id}, ${used}, now())`
    yield* sql`
        INSERT INTO credential_use (account_id, credential_id, last_failed_at, last_failure, last_failed_version)
        VALUES (${account_id}, ${failing}, now(), 'rejected', 1)`
    yield* sql`
        INSERT INTO credential_parkings (account_id, credential_id, model, key_version, cause, strikes, until, parked_at)
        VALUES (${account_id}, ${parked}, 'm', 1, 'forbidden', 1, now() + interval '1 hour', now())`
    const { data } = pageIn(yield* list("?include=status"))
    const single = yield* Effect.forEach(ids, (id) =>
      Effect.map(send({ path: `/api/v1/byok/${id}/status` }), ({ body }) => JSON.parse(body) as { data: object })
    )
    assert.deepStrictEqual<unknown>(
      data.map(({ status }) => status),
      single.map(({ data }) => data)
    )
    assert.deepStrictEqual(
      data.map(({ status }) => Reflect.get(Object(status), "state") as unknown),
      ["active", "parked", "failing"]
    )
    assert.deepStrictEqual(
      pageIn(yield* list()).data,
      data.map(({ status: _, ...credential }) => credential)
    )
  })

  it.effect("returns the same total_count whether it is read from pools or counted from rows", function* () {
    const { create, list, send } = yield* TestService.newTenant
    const ids = yield* Effect.forEach(["openai", "xai", "openai"], (provider) =>
      Effect.map(create({ provider, key }), createdId)
    )
    for (const id of [ids[0], ids[0]]) yield* send({ method: "DELETE", path: `/api/v1/byok/${id ?? ""}` })
    for (const [query, expected] of [
      ["?", 2],
      ["?provider=openai", 1],
      ["?provider=cohere", 0],
      ["?state=active", 2],
      ["?state=active&provider=xai&offset=7", 1]
    ] as const) {
      assert.strictEqual(pageIn(yield* list(query)).total_count, expected, query)
    }
  })

  it.effect("lists the default workspace unless another one is named (L4)", function* () {
    const { account_id, create, list, workspace_id } = yield* TestService.newTenant
    const another = yield* (yield* Accounts).createWorkspace(account_id, "another")
    yield* create({ provider: "openai", key, name: "default" })
    yield* create({ provider: "openai", key, name: "another", workspace_id: another.workspace_id })
    assert.deepStrictEqual(namesIn(yield* list()), ["default"])
    assert.deepStrictEqual(namesIn(yield* list(`?workspace_id=${workspace_id}`)), ["default"])
    assert.deepStrictEqual(namesIn(yield* list(`?workspace_id=${another.workspace_id.toUpperCase()}`)), ["another"])
  })

  it.effect("filters by prefix of name or label, suffix of label, and state (L4)", function* () {
    const { create, list } = yield* TestService.newTenant
    yield* create({ provider: "openai", key, name: "Production 100%" })
    yield* create({ provider: "xai", key: "xai-0123456789-0123456789-AbCd", name: "under_score", disabled: true })
    yield* create({ provider: "cohere", key })
    const found = (query: string) => Effect.map(list(query), (answer) => namesIn(answer))
    assert.deepStrictEqual(yield* found("?q=PROD"), ["Production 100%"])
    assert.deepStrictEqual(yield* found("?q=roduction"), [])
    assert.deepStrictEqual(yield* found("?q=production%20100%25"), ["Production 100%"])
    assert.deepStrictEqual(yield* found("?q=%25"), [], "no pattern")
    assert.deepStrictEqual(yield* found("?q=u__"), [], "no pattern")
    assert.deepStrictEqual(yield* found("?q=sk-"), ["Production 100%", null])
    assert.deepStrictEqual(yield* found("?q=abcd&provider=xai"), ["under_score"])
    assert.deepStrictEqual(yield* found("?q=-...AbC"), [], "neither the beginning nor the end")
    assert.deepStrictEqual(yield* found("?q=sk-&provider=cohere"), [null])
    for (const form of ["NFC", "NFD"] as const) {
      const name = `CAF\u00c9 \u30ab\u3099 ${form}`.normalize(form)
      yield* create({ provider: "mistral", key, name, is_fallback: true })
    }
    for (const form of ["NFC", "NFD"] as const) {
      const q = encodeURIComponent("caf\u00e9 \u30ac ".normalize(form))
      assert.lengthOf(yield* found(`?q=${q}`), 2, form)
    }
    assert.deepStrictEqual(yield* found("?q=cafe%20&provider=mistral"), [], "an accent counts")
    assert.deepStrictEqual(yield* found("?state=disabled"), ["under_score"])
    const page = pageIn(yield* list("?state=active&limit=1&offset=1"))
    assert.deepStrictEqual([page.data.map(({ name }) => name), page.total_count], [[null], 4])
  })

  it.effect("returns 50 credentials a page by default, and up to 100 with limit (L4)", function* () {
    const { create, list } = yield* TestService.newTenant
    yield* Effect.replicateEffect(create({ provider: "xai", key }), 101, { concurrency: 8 })
    for (const [query, length] of [
      ["", 50],
      ["?limit=100", 100],
      ["?offset=100", 1]
    ] as const) {
      const { data, total_count } = pageIn(yield* list(query))
      assert.deepStrictEqual([data.length, total_count], [length, 101])
    }
  })

  const limit = { path: ["limit"], message: "must be an integer from 1 to 100, given once" }
  const offset = { path: ["offset"], message: "must be an integer from 0 to 2147483647, given once" }
  const provider = { path: ["provider"], message: "must be a known provider slug" }
  const workspace = { path: ["workspace_id"], message: "must be a UUID" }
  const state = { path: ["state"], message: "must be active, failing, parked, disabled or leaked, given once" }
  const unused = { path: ["unused_for"], message: "must be a number of days from 1d to 9999d, given once" }
  const q = { path: ["q"], message: "must have 1 to 255 characters and no U+0000, given once" }
  it.effect.each([
    ["limit=0", [limit]],
    ["limit=101", [limit]],
    ["limit=", [limit]],
    ["limit", [limit]],
    ["limit=1&limit=1", [limit]],
    ["limit=1.0", [limit]],
    ["limit=1e1", [limit]],
    ["limit=+1", [limit]],
    ["limit=%201", [limit]],
    ["limit=0x10", [limit]],
    ["offset=-1", [offset]],
    ["offset=2147483648", [offset]],
    ["offset=99999999999999999999", [offset]],
    ["offset=&limit=all", [offset, limit]],
    ["provider=", [provider]],
    ["provider=nobody", [provider]],
    ["provider=openai&provider=cohere", [provider]],
    ["provider=OpenAI", [{ ...provider, message: `${provider.message}; the nearest is openai` }]],
    ["state=", [state]],
    ["state=unreadable", [state]],
    ["state=Active&q=", [state, q]],
    ["state=active&state=parked", [state]],
    ["q=a&q=b", [q]],
    ["q=%00", [q]],
    [`q=${"a".repeat(256)}`, [q]],
    ["unused_for=90", [unused]],
    ["unused_for=0d", [unused]],
    ["unused_for=1d&unused_for=2d", [unused]],
    ["workspace_id=", [workspace]],
    ["workspace_id=default", [workspace]],
    [
      "workspace_id=019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11",
      [{ path: ["workspace_id"], message: "is not a workspace of this account" }]
    ]
  ] as const)("refuses the query ?%s with 400 (L2, D7)", function* ([query, issues]) {
    const { list } = yield* TestService.tenant
    assertInvalid(yield* list(`?${query}`), ...issues)
  })

  it.effect(
    "lists the credentials that are as old as the days of `unused_for`, and that no attempt used since",
    function* () {
      const { sql } = yield* TestService
      const { account_id, create, list } = yield* TestService.newTenant
      const used = (id: string, days: number) => sql`
      INSERT INTO credential_use (account_id, credential_id, last_leased_at)
      VALUES (${account_id}, ${id}, now() - ${`${days} days`}::interval)`
      const ids: Array<string> = []
      for (let n = 0; n < 5; n += 1) ids.push(createdId(yield* create(minimal)))
      const [fresh = "", never = "", long = "", lately = "", freshAndUsed = ""] = ids
      yield* sql`UPDATE credentials SET created_at = now() - interval '100 days' WHERE id = ANY(${[never, long, lately]}::uuid[])`
      yield* used(long, 91)
      yield* used(lately, 89)
      yield* used(freshAndUsed, 1)
      const found = (query: string) => Effect.map(list(query), (answer) => pageIn(answer))
      const idsOf = ({ data }: Effect.Success<ReturnType<typeof found>>) => data.map(({ id }) => id).sort()
      const unused90 = yield* found("?unused_for=90d")
      assert.deepStrictEqual([idsOf(unused90), unused90.total_count], [[never, long].sort(), 2])
      assert.deepStrictEqual(idsOf(yield* found("?unused_for=80d")), [never, long, lately].sort())
      assert.deepStrictEqual(idsOf(yield* found("?unused_for=101d")), [])
      assert.include(idsOf(yield* found("")), fresh, "control")
    }
  )

  it.effect("refuses unknown query parameters, even repeated or empty, and names them (D48)", function* () {
    const { list } = yield* TestService.newTenant
    const message =
      "only offset, limit, workspace_id, provider, state, q, unused_for and include are parameters of list"
    for (const [query, ...names] of [
      ["?page=2", "page"],
      ["?cursor=&cursor=x&limit=1", "cursor"],
      ["?Limit=0", "Limit"],
      ["?limit[]=0", "limit[]"],
      ["?__proto__=1&constructor=2", "__proto__", "constructor"]
    ] as const) {
      assertInvalid(yield* list(query), ...names.map((name) => ({ path: [name], message })))
    }
    const secret = "a-secret-that-was-put-in-the-wrong-place"
    assertInvalid(yield* list(`?${secret}`), { path: [], message })
    assert.deepStrictEqual(pageIn(yield* list("?")), { data: [], total_count: 0 })
  })
})
