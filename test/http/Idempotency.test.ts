import { answerText } from "../support/http/RawConnection.ts"
import { assert } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { randomBytes } from "node:crypto"
import { Accounts } from "../../src/service/Accounts.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { acceptedBody, elementOf, integer, text } from "../support/memory/arbitraries.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { create, type Header } from "../support/http/HttpProbe.ts"
import { leakOf } from "../support/keys/leakSearch.ts"
import { Recording } from "../support/process/Recording.ts"
import { assertHeaders, assertInvalid, assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const under = (idempotency_key: string): Header => ["Idempotency-Key", idempotency_key]

/** Twenty identical creates at once, by a new tenant. */
const together = Effect.gen(function* () {
  const { rowCount } = yield* TestService
  const { create } = yield* TestService.newTenant
  const before = yield* rowCount
  const answers = yield* Effect.forEach(Array.from({ length: 20 }), () => create(minimal, [under("together")]), {
    concurrency: "unbounded"
  })
  return { answers, stored: (yield* rowCount) - before }
})

const forms: ReadonlyArray<readonly [name: string, headers: ReadonlyArray<Header>]> = [
  ["empty", [under("")]],
  ["a blank", [under(" ")]],
  ["256 characters", [under("k".repeat(256))]],
  ["a blank in it", [under("a b")]],
  ["a tabulator in it", [under("a\tb")]],
  ["a no-break space in it", [under("a\xa0b")]],
  ["a letter with a diaeresis", [under("ä")]],
  ["two headers", [under("one"), under("other")]],
  ["two equal headers", [under("one"), under("one")]],
  ["two headers, one of them empty", [under("one"), under("")]]
]

for (const batching of [true, false]) {
  const service = TestService.layerWith({
    settings: (settings) => ({ ...settings, database: { ...settings.database, batching } })
  })
  layerLive(service)(`an idempotency key${batching ? "" : ", without batching"}`, (it) => {
    it.effect("creates one credential from twenty concurrent requests, and answers all of them with it", () =>
      Effect.gen(function* () {
        const { answers, stored } = yield* together
        assert.strictEqual(stored, 1)
        assert.lengthOf(new Set(answers.map(({ body }) => body)), 1)
        for (const answer of answers) {
          created(answer)
          assertHeaders(answer)
        }
        const replayed = answers.map(({ headers }) => headers["idempotent-replayed"])
        assert.lengthOf(
          replayed.filter((value) => value === "true"),
          19
        )
        assert.lengthOf(
          replayed.filter((value) => value === undefined),
          1
        )
      })
    )
  })
}

layerLive(TestService.recordedWith({}))("logs and traces", (it) => {
  it.effect("of repeated, refused and changed creates hold neither key; a planted one is found (T4)", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      const [key, idempotency_key] = [randomBytes(16).toString("hex"), randomBytes(16).toString("hex")]
      const headers = [under(idempotency_key)]
      const answers = [
        yield* create({ ...minimal, key }, headers),
        yield* create({ ...minimal, key }, headers),
        yield* create({ ...minimal, key, name: "n" }, headers),
        yield* create({ ...minimal, key: `${key}x` }, headers),
        yield* create({ ...minimal, key }, [...headers, ...headers])
      ]
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        [201, 201, 409, 409, 400]
      )
      const { all, spans } = yield* Recording
      assert.include(spans.join(), "INSERT INTO receipts")
      assert.isUndefined(leakOf([yield* all, ...answers.map(answerText)].join("\n"), [key, idempotency_key]))
      const planted = yield* create({ ...minimal, name: idempotency_key }, headers.slice(1))
      assert.strictEqual(leakOf(answerText(planted), [idempotency_key]), idempotency_key)
    })
  )
})

layerLive(TestService.layer)("create with an idempotency key (SECURITY.md, Receipts)", (it) => {
  it.effect("answers as without one, and repeats that with a header that says so", () =>
    Effect.gen(function* () {
      const { rowCount } = yield* TestService
      const { create, get } = yield* TestService.newTenant
      const before = yield* rowCount
      const first = yield* create(minimal, [under("a")])
      assert.isUndefined(first.headers["idempotent-replayed"])
      const again = yield* create(` ${JSON.stringify({ ...minimal, name: null, more: 1 })}`, [under("a")])
      assert.strictEqual(again.status, 201)
      assert.strictEqual(again.headers["idempotent-replayed"], "true")
      assert.strictEqual(again.body, first.body)
      assertHeaders(again)
      assert.strictEqual(yield* rowCount, before + 1)
      const id = createdId(first)
      assert.strictEqual((yield* get(id)).body, first.body)
      assert.notStrictEqual(created(yield* create(minimal, [under("b")]))["id"], id)
    })
  )

  const places = integer(0, 1)
  it.effect.prop(
    "answers 409 to another body and stores nothing, while another account may use the same key",
    [acceptedBody(text(1, 20)), elementOf(["key", "name", "allowed_models"]), places],
    ([{ allowed_api_key_hashes: _, ...body }, member, place]) =>
      Effect.gen(function* () {
        const { newTenant, rowCount, url } = yield* TestService
        const tokens = [(yield* newTenant).management_key, (yield* newTenant).management_key]
        const key = under("~".repeat(255))
        for (const token of tokens) created(yield* create(url, token, body, [key]))
        const before = yield* rowCount
        const other = {
          ...body,
          provider: "groq",
          declared_region: null,
          [member]: member === "allowed_models" ? ["?"] : "?"
        }
        const answer = yield* create(url, tokens[place] ?? "", other, [key])
        assertRefused(answer, "Conflict")
        for (const token of tokens) {
          assert.strictEqual((yield* create(url, token, body, [key])).headers["idempotent-replayed"], "true")
        }
        assert.strictEqual(yield* rowCount, before)
      }),
    { arbitrary: { runs: 15 } }
  )

  it.effect("answers 409 to the same body with another provider key that has the same label", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      const answers = yield* Effect.forEach(["0", "1"], (digit) =>
        create({ ...minimal, key: `sk-${digit.repeat(20)}-AbCd` }, [under("label")])
      )
      assert.deepStrictEqual(
        answers.map(({ status }) => status),
        [201, 409]
      )
    })
  )

  it.effect.each(forms)("answers 400 and stores nothing when it is %s (D7)", ([, headers]) =>
    Effect.gen(function* () {
      const { rowCount } = yield* TestService
      const { create } = yield* TestService.tenant
      const before = yield* rowCount
      assertInvalid(yield* create(minimal, headers), {
        path: ["idempotency-key"],
        message: "must be 1 to 255 visible ASCII characters, sent once"
      })
      assert.strictEqual(yield* rowCount, before)
    })
  )

  it.effect.each(["k", "!", "a,b", '"quoted"', "~".repeat(255)])("accepts %s", (key) =>
    Effect.gen(function* () {
      const { create } = yield* TestService.newTenant
      const answers = [yield* create(minimal, [under(key)]), yield* create(minimal, [["IDEMPOTENCY-KEY", `  ${key} `]])]
      assert.deepStrictEqual(
        answers.map(({ headers, status }) => [status, headers["idempotent-replayed"]]),
        [
          [201, undefined],
          [201, "true"]
        ]
      )
    })
  )

  it.effect("answers 401 and 403 first (D2, D3, D4)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { management_key, management_key_hash } = yield* TestService.newTenant
      created(yield* create(url, management_key, minimal, [under("first")]))
      assertRefused(yield* create(url, "unknown", minimal, [under("first")]), "InvalidKey")
      assertRefused(yield* create(url, "", minimal, [under("a b")]), "MissingKey")
      yield* (yield* Accounts).revokeApiKey(management_key_hash)
      assertRefused(yield* create(url, management_key, minimal, [under("first")]), "InvalidKey")
    })
  )

  it.effect("is remembered for the account, under any of its management keys", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { account_id, management_key } = yield* TestService.newTenant
      const { key } = yield* (yield* Accounts).issueApiKey(account_id, { name: "another", management: true })
      const first = yield* create(url, management_key, minimal, [under("k")])
      const again = yield* create(url, Redacted.value(key), minimal, [under("k")])
      assert.deepStrictEqual([again.status, again.body], [201, first.body])
    })
  )

  it.effect("answers with what was stored even after the default workspace is deleted", () =>
    Effect.gen(function* () {
      const { create, workspace_id } = yield* TestService.newTenant
      const first = yield* create(minimal, [under("k")])
      yield* (yield* Accounts).deleteWorkspace(workspace_id)
      const again = yield* create(minimal, [under("k")])
      assert.deepStrictEqual([again.status, again.body], [201, first.body])
      assertInvalid(yield* create(minimal, [under("another")]), {
        path: ["workspace_id"],
        message: "is required: the default workspace is deleted"
      })
    })
  )

  it.effect("is remembered after its credential is deleted, which it does not bring back (L11)", () =>
    Effect.gen(function* () {
      const { create, delete: remove, list } = yield* TestService.newTenant
      const first = created(yield* create(minimal, [under("k")]))
      yield* remove(String(first["id"]))
      for (const body of [minimal, { ...minimal, name: "n" }]) {
        assertRefused(yield* create(body, [under("k")]), "Conflict")
      }
      assert.strictEqual((yield* list()).body, '{"data":[],"total_count":0}')
    })
  )
})
