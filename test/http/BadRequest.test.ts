import { Effect } from "effect"
import { layerLive } from "../support/it.ts"
import { created, minimal } from "../support/http/Bodies.ts"
import { type Header, json } from "../support/http/HttpProbe.ts"
import { assertInvalid, type Issue } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

type Cases = ReadonlyArray<readonly [rule: string, body: unknown, ...issues: ReadonlyArray<Issue>]>

const issue = (message: string, ...path: Issue["path"]): Issue => ({ path, message })

/** The smallest body with so many more members. */
const members = (count: number) =>
  JSON.stringify({ ...minimal, ...Object.fromEntries(Array.from({ length: count }, (_, n) => [`a${n}`, 0])) })

const bodies: Cases = [
  ["empty", "", issue("must be a JSON object")],
  ["JSON that is cut off", '{"key":"k","provider":"xai"', issue("must be valid JSON")],
  ["JSON with more behind it", `${JSON.stringify(minimal)}x`, issue("must be valid JSON")],
  ["a form", "key=k&provider=xai", issue("must be valid JSON")],
  ["null", "null", issue("must be a JSON object")],
  ["a list", JSON.stringify([minimal]), issue("must be a JSON object")],
  ["1,000 nested lists", "[".repeat(1000), issue("must be valid JSON")],
  ["200,000 nested lists", "[".repeat(200_000), issue("must have at most 2000 values")],
  ["JSON of 2,001 values", members(1998), issue("must have at most 2000 values")],
  [
    "JSON with a value that is not UTF-8",
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
  ["text/plain", [["Content-Type", "text/plain"]]],
  ["a form", [["Content-Type", "application/x-www-form-urlencoded"]]],
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

/** A create of the smallest body with these headers. */
const createWith = (headers: ReadonlyArray<Header>) =>
  Effect.flatMap(TestService.tenant, ({ send }) =>
    send({ method: "POST", path: "/api/v1/byok", headers, body: JSON.stringify(minimal) })
  )

layerLive(TestService.layer)("POST /api/v1/byok (section 7)", (it) => {
  const refuses = Effect.fnUntraced(function* (body: unknown, ...issues: ReadonlyArray<Issue>) {
    const { create } = yield* TestService.tenant
    assertInvalid(yield* TestService.storing(0, create(body)), ...issues)
  })

  it.effect.each(bodies)("create answers 400 if its body is %s (D8)", ([, body, ...issues]) => refuses(body, ...issues))

  it.effect.each(contentTypes)("create answers 400 if the content type is %s (D8)", function* ([, headers]) {
    const answer = yield* TestService.storing(0, createWith(headers))
    assertInvalid(answer, issue("must be sent as application/json"))
  })

  it.effect.each([
    "application/json",
    "Application/JSON",
    "application/json ;charset=UTF-8",
    "application/json; charset=utf-16"
  ])("create accepts the content type %s (section 4.1)", (type) =>
    Effect.map(createWith([["Content-Type", type]]), created)
  )

  it.effect.each(["gzip", "x-canary"])("create answers 400 if Content-Encoding is %s (D8)", function* (encoding) {
    const answer = yield* createWith([json, ["Content-Encoding", encoding]])
    assertInvalid(answer, issue("must be sent without content encoding"))
  })

  it.effect("create accepts Content-Encoding: identity, in any case (RFC 9110, section 8.4.1)", () =>
    Effect.map(createWith([json, ["Content-Encoding", "Identity"]]), created)
  )

  it.effect("create accepts 2,000 values", function* () {
    const { create } = yield* TestService.tenant
    created(yield* create(members(1997)))
  })

  it.effect("create accepts a byte order mark before the object (RFC 8259, section 8.1)", function* () {
    const { create } = yield* TestService.tenant
    created(yield* create(`\ufeff${JSON.stringify(minimal)}`))
  })
})
