import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { Accounts } from "../../src/service/Accounts.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, minimal } from "../support/http/Bodies.ts"
import { bearer, type Header, send } from "../support/http/HttpProbe.ts"
import { assertInvalid, type Issue } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

type Cases = ReadonlyArray<readonly [rule: string, body: unknown, ...issues: ReadonlyArray<Issue>]>

const issue = (message: string, ...path: Issue["path"]): Issue => ({ path, message })
/** A create that is valid but for one value, and what is said of it. */
const wrong = (field: string, what: string, value: unknown, message: string, ...path: Issue["path"]): Cases[number] => [
  `${field}: ${what}`,
  { ...minimal, [field]: value },
  issue(message, field, ...path)
]

const tooMany = Array.from({ length: 101 }, (_, index) => `item-${index}`)
const hash = "0123456789abcdef".repeat(4)
const unstorable = "must not contain U+0000 or half of a surrogate pair"
const listOrNull = "must be a list of strings or null"
const notAHash = "must be 64 lowercase hexadecimal characters"
const flags = ["disabled", "is_required", "is_fallback", "is_byok_only"]

const fields: Cases = [
  ["no key (rule 1)", { provider: "xai" }, issue("is required", "key")],
  ["no provider (rule 1)", { key: "k" }, issue("is required", "provider")],
  ["neither key nor provider (rule 1)", {}, issue("is required", "key"), issue("is required", "provider")],

  wrong("key", "empty (section 8)", "", "must not be empty"),
  wrong("key", "null (D21)", null, "must be a string"),
  wrong("key", "number", 5, "must be a string"),
  wrong("key", "boolean", true, "must be a string"),
  wrong("key", "list", ["k"], "must be a string"),
  wrong("key", "object, also where key material is JSON", { api_key: "k" }, "must be a string"),
  wrong("key", "U+0000 (D25)", "a\0b", unstorable),
  wrong("key", "first half of a surrogate pair (D25)", "a\ud83d", unstorable),
  wrong("key", "second half of a surrogate pair (D25)", "\ude00b", unstorable),

  wrong("provider", "null (D21)", null, "must be a known provider slug"),
  wrong("provider", "number", 1, "must be a known provider slug"),
  wrong("provider", "unknown (section 2.2)", "nobody", "must be a known provider slug"),
  wrong("provider", "empty", "", "must be a known provider slug"),
  wrong("provider", "capitals", "OpenAI", "must be a known provider slug"),
  wrong("provider", "a blank behind it", "openai ", "must be a known provider slug"),
  wrong("provider", "a suffix it does not have", "openai/2", "must be a known provider slug"),
  wrong("provider", "a name that every object has", "constructor", "must be a known provider slug"),

  wrong("name", "256 characters (section 8)", "a".repeat(256), "must have at most 255 characters"),
  wrong("name", "256 code points outside the BMP (D20)", "𝒦".repeat(256), "must have at most 255 characters"),
  wrong("name", "number", 5, "must be a string or null"),
  wrong("name", "list", [], "must be a string or null"),
  wrong("name", "U+0000 (D25)", "\0", unstorable),
  wrong("name", "half of a surrogate pair (D25)", "\udfff", unstorable),

  wrong("workspace_id", "null (D21)", null, "must be a UUID"),
  wrong("workspace_id", "empty", "", "must be a UUID"),
  wrong("workspace_id", "no UUID", "default", "must be a UUID"),
  wrong("workspace_id", "number", 1, "must be a UUID"),
  wrong("workspace_id", "a UUID in braces", "{019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11}", "must be a UUID"),

  wrong("allowed_api_key_hashes", "empty (D22, section 8)", [], "must have at least 1 element"),
  wrong(
    "allowed_api_key_hashes",
    "101 (section 8)",
    tooMany.map(() => hash),
    "must have at most 100 elements"
  ),
  wrong("allowed_api_key_hashes", "63 characters", [hash.slice(1)], notAHash, 0),
  wrong("allowed_api_key_hashes", "65 characters", [`${hash}0`], notAHash, 0),
  wrong("allowed_api_key_hashes", "capitals", [hash.toUpperCase()], notAHash, 0),
  wrong("allowed_api_key_hashes", "another letter", [`g${hash.slice(1)}`], notAHash, 0),
  wrong("allowed_api_key_hashes", "a line break behind it", [`${hash}\n`], notAHash, 0),
  [
    "allowed_api_key_hashes: two wrong ones",
    { ...minimal, allowed_api_key_hashes: ["", hash, null] },
    issue(notAHash, "allowed_api_key_hashes", 0),
    issue("must be a string", "allowed_api_key_hashes", 2)
  ],
  wrong("allowed_api_key_hashes", "a text", hash, listOrNull),

  wrong("allowed_models", "101 (section 8)", tooMany, "must have at most 100 elements"),
  wrong("allowed_models", "a text", "a/model", listOrNull),
  wrong("allowed_models", "an object", { 0: "a" }, listOrNull),
  wrong("allowed_models", "a number in it (D7)", ["a", "b", "c", 4], "must be a string", 3),
  wrong("allowed_models", "null in it", [null], "must be a string", 0),
  wrong("allowed_models", "U+0000 in it (D25)", ["a", "\0"], unstorable, 1),
  wrong("allowed_models", "half of a surrogate pair in it (D25)", ["\ud800"], unstorable, 0),

  wrong("allowed_user_ids", "101 (section 8)", tooMany, "must have at most 100 elements"),
  wrong("allowed_user_ids", "true", true, listOrNull),
  wrong("allowed_user_ids", "a list in it", [["u"]], "must be a string", 0),
  wrong("allowed_user_ids", "U+0000 in it (D25)", ["\0"], unstorable, 0),
  wrong("allowed_user_ids", "half of a surrogate pair in it (D25)", ["u", "\udc00"], unstorable, 1),

  ...["eu", "US", "mars", "", 5, true, ["us"]].map(
    (declared_region) =>
      [
        `declared_region: ${JSON.stringify(declared_region)}`,
        { ...minimal, provider: "azure", declared_region },
        issue("must be global, europe, us or null", "declared_region")
      ] as const
  ),
  ...["true", 0, 1, "", []].map(
    (declared_zdr) =>
      [
        `declared_zdr: ${JSON.stringify(declared_zdr)}`,
        { ...minimal, declared_zdr },
        issue("must be true, false or null", "declared_zdr")
      ] as const
  ),
  ...flags.flatMap((flag) =>
    [null, "true", 0, 1, "", {}].map(
      (value) =>
        [
          `${flag}: ${JSON.stringify(value)} (D21)`,
          { ...minimal, [flag]: value },
          issue("must be true or false", flag)
        ] as const
    )
  ),

  [
    "is_fallback with is_byok_only (rule 2, D31)",
    { ...minimal, is_fallback: true, is_byok_only: true },
    issue("cannot be combined with is_fallback", "is_byok_only")
  ],
  [
    "is_fallback with is_required (rule 3, D31)",
    { ...minimal, is_fallback: true, is_required: true },
    issue("cannot be combined with is_fallback", "is_required")
  ],
  [
    "is_fallback with both (rules 2 and 3, D31)",
    { ...minimal, is_fallback: true, is_byok_only: true, is_required: true },
    issue("cannot be combined with is_fallback", "is_byok_only"),
    issue("cannot be combined with is_fallback", "is_required")
  ],
  [
    "every field that is wrong is named (D7)",
    { key: "", provider: "nobody", name: 5, allowed_models: ["a", 1, "b", 2], disabled: "no" },
    issue("must not be empty", "key"),
    issue("must be a known provider slug", "provider"),
    issue("must be a string or null", "name"),
    issue("must be a string", "allowed_models", 1),
    issue("must be a string", "allowed_models", 3),
    issue("must be true or false", "disabled")
  ]
]

const bodies: Cases = [
  ["nothing", "", issue("must be a JSON object")],
  ["JSON that is cut off", '{"key":"k","provider":"xai"', issue("must be valid JSON")],
  ["JSON with more behind it", `${JSON.stringify(minimal)}x`, issue("must be valid JSON")],
  ["two JSON objects", JSON.stringify(minimal).repeat(2), issue("must be valid JSON")],
  ["single quotes", "{'key':'k'}", issue("must be valid JSON")],
  ["a comma too many", '{"key":"k","provider":"xai",}', issue("must be valid JSON")],
  ["a comment", '{"key":"k","provider":"xai"/**/}', issue("must be valid JSON")],
  ["a raw line break in a string", '{"key":"k\n","provider":"xai"}', issue("must be valid JSON")],
  ["NaN", '{"key":"k","provider":"xai","disabled":NaN}', issue("must be valid JSON")],
  ["a form", "key=k&provider=xai", issue("must be valid JSON")],
  ["null", "null", issue("must be a JSON object")],
  ["a list", JSON.stringify([minimal]), issue("must be a JSON object")],
  ["a text", '"key"', issue("must be a JSON object")],
  ["a number", "5", issue("must be a JSON object")],
  ["true", "true", issue("must be a JSON object")],
  ["200,000 nested lists", "[".repeat(200_000), issue("must be valid JSON")],
  [
    "bytes that are not UTF-8 in a value",
    Buffer.from('{"key":"\xff","provider":"xai"}', "latin1"),
    issue("must be UTF-8")
  ],
  ["an overlong encoding", Buffer.from('{"key":"\xc0\xaf","provider":"xai"}', "latin1"), issue("must be UTF-8")],
  [
    "an encoded half of a surrogate pair",
    Buffer.from('{"key":"\xed\xa0\x80","provider":"xai"}', "latin1"),
    issue("must be UTF-8")
  ],
  [
    "a character that is cut off at the end",
    Buffer.from('{"key":"k","provider":"xai"}\xe2\x82', "latin1"),
    issue("must be UTF-8")
  ],
  ["UTF-16", Buffer.from(`\ufeff${JSON.stringify(minimal)}`, "utf16le"), issue("must be UTF-8")]
]

const contentTypes: ReadonlyArray<readonly [name: string, headers: ReadonlyArray<Header>]> = [
  ["none", []],
  ["an empty one", [["Content-Type", ""]]],
  ["text/plain", [["Content-Type", "text/plain"]]],
  ["a form", [["Content-Type", "application/x-www-form-urlencoded"]]],
  ["a multipart form", [["Content-Type", "multipart/form-data; boundary=x"]]],
  ["another kind of JSON", [["Content-Type", "application/merge-patch+json"]]],
  ["a longer name", [["Content-Type", "application/jsonl"]]],
  [
    "JSON and another",
    [
      ["Content-Type", "application/json"],
      ["Content-Type", "text/plain"]
    ]
  ],
  ["JSON as a parameter", [["Content-Type", "text/plain; application/json"]]]
]

layerLive(TestService.layer)("create answers 400 (section 7)", (it) => {
  const refuses = Effect.fnUntraced(function* (body: unknown, ...issues: ReadonlyArray<Issue>) {
    const { rowCount } = yield* TestService
    const { create } = yield* TestService.tenant
    const before = yield* rowCount
    assertInvalid(yield* create(body), ...issues)
    assert.strictEqual(yield* rowCount, before)
  })

  it.effect.each(fields)("%s (section 4.1)", ([, body, ...issues]) => refuses(body, ...issues))

  it.effect.each(bodies)("the body is %s (D8)", ([, body, ...issues]) => refuses(body, ...issues))

  it.effect.each(contentTypes)("the content type is %s (D8)", ([, headers]) =>
    Effect.gen(function* () {
      const { rowCount, url } = yield* TestService
      const { management_key } = yield* TestService.tenant
      const before = yield* rowCount
      const answer = yield* send(url, {
        method: "POST",
        path: "/api/v1/byok",
        headers: [bearer(management_key), ...headers],
        body: JSON.stringify(minimal)
      })
      assertInvalid(answer, issue("must be sent as application/json"))
      assert.strictEqual(yield* rowCount, before)
    })
  )

  it.effect.each([
    "application/json",
    "Application/JSON",
    "application/json; charset=utf-8",
    "application/json ;charset=UTF-8",
    "application/json; charset=utf-16"
  ])("but accepts the content type %s (section 4.1)", (type) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { management_key } = yield* TestService.tenant
      const answer = yield* send(url, {
        method: "POST",
        path: "/api/v1/byok",
        headers: [bearer(management_key), ["Content-Type", type]],
        body: JSON.stringify(minimal)
      })
      created(answer)
    })
  )

  it.effect.each(["gzip", "br", "x-canary"])("the body is encoded as %s (D8)", (encoding) =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      const answer = yield* create(minimal, [["Content-Encoding", encoding]])
      assertInvalid(answer, issue("must be sent without content encoding"))
    })
  )

  it.effect("but accepts Content-Encoding: identity, in any case (RFC 9110, section 8.4.1)", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      created(yield* create(minimal, [["Content-Encoding", "Identity"]]))
    })
  )

  it.effect("but accepts a byte order mark in front of the object (RFC 8259, section 8.1)", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      created(yield* create(`\ufeff${JSON.stringify(minimal)}`))
    })
  )

  it.effect("names at most 100 of 100,000 wrong places (D7)", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      const answer = yield* create({
        ...minimal,
        allowed_models: Array.from({ length: 100_000 }, () => 1)
      })
      assert.strictEqual(answer.status, 400)
      assert.isBelow(answer.body.length, 10_000)
    })
  )

  it.effect.each(["unknown", "another account's", "deleted"])(
    "workspace_id: %s, with one message for all (D6)",
    (which) =>
      Effect.gen(function* () {
        const { newTenant, rowCount } = yield* TestService
        const { account_id, create } = yield* newTenant
        const accounts = yield* Accounts
        const { workspace_id: deleted } = yield* accounts.createWorkspace(account_id, "soon deleted")
        yield* accounts.deleteWorkspace(deleted)
        const foreign = (yield* newTenant).workspace_id
        const unknown = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
        const workspace_id = which === "deleted" ? deleted : which === "unknown" ? unknown : foreign
        const before = yield* rowCount
        assertInvalid(
          yield* create({ ...minimal, workspace_id }),
          issue("is not a workspace of this account", "workspace_id")
        )
        assert.strictEqual(yield* rowCount, before)
      })
  )

  it.effect("the default workspace is deleted and none is given, from the next request on (section 4.1, D43)", () =>
    Effect.gen(function* () {
      const { rowCount } = yield* TestService
      const { account_id, create, workspace_id } = yield* TestService.newTenant
      const accounts = yield* Accounts
      const { workspace_id: another } = yield* accounts.createWorkspace(account_id, "another")
      created(yield* create(minimal))
      yield* accounts.deleteWorkspace(workspace_id)
      const before = yield* rowCount
      assertInvalid(yield* create(minimal), issue("is required: the default workspace is deleted", "workspace_id"))
      assert.strictEqual(yield* rowCount, before)
      const made = created(yield* create({ ...minimal, workspace_id: another }))
      assert.strictEqual(made["workspace_id"], another)
    })
  )

  it.effect.each(["unknown", "another account's", "revoked"])(
    "allowed_api_key_hashes: %s, with one message for all and among valid ones (section 4.1, D24)",
    (which) =>
      Effect.gen(function* () {
        const { newTenant, rowCount } = yield* TestService
        const { account_id, create, management_key_hash: own } = yield* newTenant
        const accounts = yield* Accounts
        const { hash: revoked } = yield* accounts.issueApiKey(account_id, { name: "revoked", management: false })
        yield* accounts.revokeApiKey(revoked)
        const foreign = (yield* newTenant).management_key_hash
        const wrong = which === "revoked" ? revoked : which === "unknown" ? hash : foreign
        const before = yield* rowCount
        const answer = yield* create({
          ...minimal,
          allowed_api_key_hashes: [own, wrong, own, wrong]
        })
        assertInvalid(
          answer,
          issue("is not an API key of this account", "allowed_api_key_hashes", 1),
          issue("is not an API key of this account", "allowed_api_key_hashes", 3)
        )
        assert.strictEqual(yield* rowCount, before)
      })
  )

  it.effect("both the workspace and a hash are named if both are wrong (D7)", () =>
    refuses(
      { ...minimal, workspace_id: "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11", allowed_api_key_hashes: [hash] },
      issue("is not a workspace of this account", "workspace_id"),
      issue("is not an API key of this account", "allowed_api_key_hashes", 0)
    )
  )
})
