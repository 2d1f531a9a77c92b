import { Arbitrary, Context, Effect, Layer, Redacted, type Scope } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { DatabaseFailure } from "../../src/port/DatabaseFailure.ts"
import { MemoryBudget } from "../../src/port/MemoryBudget.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { createdId, minimal, unknownId } from "../support/http/Bodies.ts"
import { bearer, type Header, json, render } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { wipedBy } from "../support/http/wipedBy.ts"
import { elementOf, integer, oneOf } from "../support/memory/arbitraries.ts"
import { assert, layerLive } from "../support/it.ts"
import { Recording } from "../support/process/Recording.ts"
import { eventually } from "../support/process/eventually.ts"

const collection = "/api/v1/byok"

/** The same media type in another spelling, which is left to the contract's way. */
const inFull: Header = ["Content-Type", "application/json; charset=utf-8"]

/** A get that announces an empty body is left to it as well. */
const noBody: Header = ["Content-Length", "0"]

interface Sent {
  readonly method: "GET" | "POST" | "PATCH"
  readonly path: string
  readonly headers: ReadonlyArray<Header>
  readonly body?: string | Uint8Array
}

/** Sends a request, in pieces so far apart that each is read by itself, and reads all that comes back. */
const answerTo = (url: string, pieces: ReadonlyArray<Uint8Array>) =>
  Effect.gen(function* () {
    const connection = yield* open(url)
    for (const [n, piece] of pieces.entries()) {
      if (n > 0) yield* Effect.sleep("30 millis")
      yield* connection.write(piece)
    }
    const text = yield* connection.closed
    const [head = "", body = ""] = text.split("\r\n\r\n")
    const [status = "", ...lines] = head.split("\r\n")
    return {
      status: Number(status.split(" ")[1]),
      lines,
      body,
      isPlain: lines.some((line) => /^X-Request-Id/.test(line))
    }
  }).pipe(Effect.scoped)

const bytesOf = ({ headers, ...sent }: Sent, more: ReadonlyArray<Header>) =>
  render({ ...sent, headers: [...more, ...headers, ["Connection", "close"]] })

/** An answer without what is new in each: times, ids, and places in a pool. */
const comparable = ({ body, lines, status }: Effect.Success<ReturnType<typeof answerTo>>) => ({
  status,
  lines: lines
    .map((line) => line.replace(/^[^:]+/, (name) => name.toLowerCase()))
    .map((line) => line.replace(/^(x-request-id: )[\da-f]{8}-[\da-f-]{27}$/, "$1new"))
    .map((line) => line.replace(/^(date|content-length): .*/, "$1"))
    .sort(),
  body: body.replace(/"(id|created_at)":"[^"]*"/g, '"$1":""').replace(/"sort_order":\d+/, '"sort_order":0')
})

const whole = {
  ...minimal,
  ...{ name: "a name", disabled: true, is_fallback: false, is_required: false, is_byok_only: true },
  ...{ allowed_models: ["a/model"], allowed_user_ids: ["u"], allowed_api_key_hashes: null, declared_region: "global" },
  declared_zdr: true
}
const values: ReadonlyArray<unknown> = [
  ...[null, true, false, 1, "", "a", "a\0", "\ud800", "europe", "us", "azure", "fireworks", " padded ", unknownId],
  ...[
    "x".repeat(255),
    "x".repeat(256),
    "😀".repeat(200),
    '{"api_key":"sk-eu-0123456789-0123456789","region":"eu"}',
    "{"
  ],
  ...[
    [],
    {},
    ["a"],
    [null],
    ["a", 1],
    Array(100).fill("m"),
    Array(101).fill("m"),
    ["0".repeat(64)],
    "busy",
    "defect",
    "away"
  ]
]

/** Bodies with members that miss, have another value or are unknown, and some that are no JSON or no UTF-8. */
const bodiesFrom = (members: object) => {
  const names = [...Object.keys(whole), "workspace_id", "id", "label", "zdr"]
  const changes = Arbitrary.array(Arbitrary.all({ name: elementOf(names), value: elementOf(values) }), { maxLength: 2 })
  const sent = Arbitrary.map(changes, (all) =>
    Buffer.from(JSON.stringify({ ...members, ...Object.fromEntries(all.map(({ name, value }) => [name, value])) }))
  )
  const at = integer(0, 60)
  const broken = Arbitrary.map(Arbitrary.all({ body: sent, at }), ({ at, body }) =>
    Buffer.concat([body.subarray(0, at), Buffer.from([0xff])])
  )
  const marked = Arbitrary.map(sent, (body) => Buffer.concat([Buffer.from("\ufeff"), body]))
  const cut = Arbitrary.map(Arbitrary.all({ body: sent, at }), ({ at, body }) => body.subarray(0, at + 1))
  return oneOf<Buffer>(sent, sent, sent, sent, broken, marked, cut)
}

let left = 0

/** The pages that begin there fail likewise. */
const failingOffsets = ["busy", "defect", "away"].map((name, n) => ({ name, offset: 7000 + n }))

/** Creates and updates under four names fail as a full queue does, as nobody expects, as without the database, and never end. */
const failing = Effect.map(Effect.context<Parts>(), (parts) => {
  const credentials = Context.get(parts, Credentials)
  const fail = (name: unknown) => {
    if (name === "busy") return Effect.fail(new ServiceUnavailable())
    if (name === "defect") return Effect.die(new Error("canary"))
    if (name === "endless") return Effect.onInterrupt(Effect.never, () => Effect.sync(() => void (left += 1)))
    if (name !== "away") return Effect.void
    return Effect.die(new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined }))
  }
  return Context.add(parts, Credentials, {
    ...credentials,
    create: (input, ...more) => Effect.andThen(fail(input.name), credentials.create(input, ...more)),
    update: (id, changes) => Effect.andThen(fail(changes.name), credentials.update(id, changes)),
    list: (page) =>
      Effect.andThen(fail(failingOffsets.find(({ offset }) => offset === page.offset)?.name), credentials.list(page)),
    get: (id) => Effect.flatMap(credentials.get(id), (found) => Effect.as(fail(found.label.slice(0, 4)), found))
  })
})

layerLive(TestService.layerWith({ parts: failing }))("creates, lists, updates and gets", (it) => {
  /** A tenant's tokens of every kind, and those of nobody. */
  const tokensOf = Effect.fnUntraced(function* (tenant: Effect.Success<typeof TestService.newTenant>) {
    const accounts = yield* Accounts
    const issue = (given: object) =>
      accounts.issueApiKey(tenant.account_id, { name: "a key", management: false, ...given })
    const viewer = yield* issue({ viewer: true })
    const revoked = yield* issue({ management: true })
    yield* accounts.revokeApiKey(revoked.hash)
    const other = tenant.management_key.endsWith("0") ? "1" : "0"
    return {
      management: tenant.management_key,
      ordinary: yield* tenant.ordinaryKey,
      viewer: Redacted.value(viewer.key),
      revoked: Redacted.value(revoked.key),
      miscopied: tenant.management_key.slice(0, -1) + other,
      unknown: "anything-else"
    }
  })

  it.effect("are answered as the contract's handlers answer them, whatever is sent", function* () {
    const { url } = yield* TestService
    const tenant = yield* TestService.newTenant
    const tokens = yield* tokensOf(tenant)
    const [one, other] = [createdId(yield* tenant.create(whole)), createdId(yield* tenant.create(whole))]
    const foreign = createdId(yield* (yield* TestService.newTenant).create(minimal))
    const seen = new Set<string>()

    /** Asks in both ways, for credentials that are alike. */
    const both = Effect.fnUntraced(function* (
      method: Sent["method"],
      body: Buffer | undefined,
      {
        cut = 0,
        headers = [],
        id,
        query,
        token
      }: { cut?: number; headers?: ReadonlyArray<Header>; id?: string; query?: string; token: string }
    ) {
      const ask = (type: ReadonlyArray<Header>, own: string) => {
        const path = method === "POST" ? collection : `${collection}${query ?? `/${id ?? own}`}`
        const given = headers.map(([name, value]): Header => [name, value.replace("OWN", own)])
        const sent = bytesOf({ method, path, headers: given, ...(body === undefined ? {} : { body }) }, [
          bearer(token),
          ...type
        ])
        return answerTo(url, cut === 0 ? [sent] : [sent.subarray(0, -cut), sent.subarray(-cut)])
      }
      const types = method === "GET" ? ([[], [noBody]] as const) : ([[json], [inFull]] as const)
      const [plain, contract] = yield* Effect.all([ask(types[0], one), ask(types[1], other)])
      const what = `${method} ${String(query ?? id)} ${body?.toString("latin1")} ${JSON.stringify(headers)}`
      if (query === undefined) assert.isTrue(plain.isPlain, what)
      assert.isFalse(contract.isPlain, what)
      assert.deepStrictEqual(comparable(plain), comparable(contract), what)
      seen.add(`${query === undefined ? method : `list, plain: ${plain.isPlain},`} ${plain.status}`)
      return true
    })

    const anyToken = elementOf([...Array<string>(9).fill(tokens.management), ...Object.values(tokens)])
    const idempotency = elementOf<ReadonlyArray<Header>>([
      [],
      [["Idempotency-Key", "first-OWN"]],
      [["Idempotency-Key", "second-OWN"]],
      [["X-Request-Id", "mine"]]
    ])
    const creates = Arbitrary.all({
      body: oneOf(bodiesFrom(minimal), bodiesFrom(whole)),
      token: anyToken,
      headers: idempotency,
      cut: elementOf([0, 0, 0, 0, 0, 1])
    })
    const updates = Arbitrary.all({
      body: bodiesFrom({}),
      token: anyToken,
      id: elementOf([undefined, undefined, undefined, undefined, unknownId, foreign]),
      headers: elementOf<ReadonlyArray<Header>>([[]]),
      cut: elementOf([0, 0, 0, 0, 0, 1])
    })
    const gets = Arbitrary.all({ token: anyToken, id: elementOf([undefined, unknownId, foreign]) })
    const parameters = Arbitrary.array(
      Arbitrary.all({
        name: elementOf([
          "limit",
          "limit",
          "offset",
          "offset",
          "workspace_id",
          "provider",
          "state",
          "include",
          "Limit"
        ]),
        value: elementOf([
          "0",
          "1",
          "2",
          "07",
          "50",
          "99",
          "100",
          "101",
          "1000",
          "999999999",
          "2147483648",
          "",
          "-1",
          "%31",
          "+1",
          "1.0",
          "openai"
        ])
      }),
      { maxLength: 3 }
    )
    const lists = Arbitrary.all({
      token: anyToken,
      query: Arbitrary.map(parameters, (all) =>
        `?${all.map(({ name, value }) => `${name}=${value}`).join("&")}`.replace(/^\?$/, "")
      )
    })
    const given = <A extends { id?: string | undefined }>({ id, ...more }: A) => ({
      ...more,
      ...(id === undefined ? {} : { id })
    })
    const passes = <A>(
      requests: Arbitrary.Arbitrary<A>,
      runs: number,
      check: (request: A) => ReturnType<typeof both>
    ) =>
      Effect.map(Arbitrary.checkEffect(requests, check, { runs }), (checked) => {
        assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
      })
    yield* passes(lists, 150, (more) => both("GET", undefined, more))
    yield* passes(creates, 300, ({ body, ...more }) => both("POST", body, more))
    yield* passes(updates, 300, ({ body, ...more }) => both("PATCH", body, given(more)))
    yield* passes(gets, 40, (more) => both("GET", undefined, given(more)))
    for (const token of Object.values(tokens))
      for (const more of [{}, { query: "" }]) yield* both("GET", undefined, { token, ...more })
    const token = tokens.management
    for (const { offset } of failingOffsets) yield* both("GET", undefined, { token, query: `?offset=${offset}` })
    const named = (name: string, more: object = {}) => Buffer.from(JSON.stringify({ ...minimal, ...more, name }))
    for (const name of ["busy", "defect", "away"]) {
      yield* both("POST", named(name), { token })
      yield* both("PATCH", Buffer.from(JSON.stringify({ name })), { token })
    }
    const repeated: ReadonlyArray<Header> = [["Idempotency-Key", "third-OWN"]]
    for (const name of ["a", "a", "b"]) yield* both("POST", named(name), { token, headers: repeated })
    assert.includeMembers(
      [...seen],
      ["GET 200", "GET 401", "GET 403", "GET 404"].concat(
        ["POST 201", "POST 400", "POST 401", "POST 403", "POST 409", "POST 500", "POST 503"],
        [200, 401, 403, 500, 503].map((status) => `list, plain: true, ${status}`),
        ["list, plain: false, 200", "list, plain: false, 400"],
        ["PATCH 200", "PATCH 400", "PATCH 401", "PATCH 403", "PATCH 404", "PATCH 500", "PATCH 503"]
      )
    )
  })

  it.effect("are left to the contract's handlers if they need more than their bodies", function* () {
    const { url } = yield* TestService
    const { management_key, ...tenant } = yield* TestService.newTenant
    const id = createdId(yield* tenant.create(minimal))
    const body = JSON.stringify(minimal)
    const key = bearer(management_key)
    const create = (headers: ReadonlyArray<Header>, sent: string = body, path = collection) =>
      render({ method: "POST", path, headers: [...headers, ["Connection", "close"]], body: sent })
    const at = (method: string, path: string, headers: ReadonlyArray<Header> = [], sent = "") =>
      render({ method, path, headers: [key, ...headers, ["Connection", "close"]], body: sent })
    const longest = `${body.slice(0, -1)},"name":"${"x".repeat(256 * 1024 - body.length - 10)}"}`
    for (const [bytes, status, isPlain] of [
      [create([key, json]), 201, true],
      [create([key, json], longest), 400, true],
      [create([key, json], `${longest} `), 413, false],
      [create([["Authorization", `bearer ${management_key}`], json]), 201, false],
      [create([["Authorization", `Bearer  ${management_key}`], json]), 201, false],
      [create([key, key, json]), 401, false],
      [create([json]), 401, false],
      [create([key]), 400, false],
      [create([key, json, ["Content-Encoding", "gzip"]]), 400, false],
      [create([key, json, ["Host", "a"], ["Host", "b"]]), 400, false],
      [create([key, json, ["Idempotency-Key", "not one"]]), 400, false],
      [create([key, json], body, `${collection}/`), 404, false],
      [create([key, json], body, `${collection}?`), 201, false],
      [create([key, json], body, `http://localhost${collection}`), 201, false],
      [
        create([key, json, ["Transfer-Encoding", "chunked"]], `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`),
        201,
        false
      ],
      [at("GET", `${collection}/${id}`), 200, true],
      [at("GET", collection), 200, true],
      [at("GET", `${collection}?limit=100&offset=999999999`), 200, true],
      [at("GET", `${collection}?offset=07&limit=1`), 200, true],
      [at("GET", `${collection}?limit=101`), 400, false],
      [at("GET", `${collection}?limit=1&limit=1`), 400, false],
      [at("GET", `${collection}?limit=1&include=status`), 200, false],
      [at("GET", `${collection}?`), 200, false],
      [at("HEAD", collection), 200, false],
      [at("HEAD", `${collection}/${id}`), 200, false],
      [at("GET", `${collection}/${id.toUpperCase()}`), 200, false],
      [at("GET", `${collection}/nobody`), 404, false],
      [at("GET", `${collection}/${id}?q=1`), 200, false],
      [at("PATCH", `${collection}/${id}`, [json], "{}"), 200, true],
      [at("PATCH", `${collection}/${id}/status`, [json], "{}"), 405, false],
      [at("PUT", `${collection}/${id}`, [json], "{}"), 405, false]
    ] as const) {
      const answer = yield* answerTo(url, [bytes])
      assert.deepStrictEqual([answer.status, answer.isPlain], [status, isPlain], bytes.toString("latin1", 0, 200))
    }
  })

  it.effect.each([
    ["plain", json],
    ["contract's", inFull]
  ] as const)(
    "hold memory for what has arrived in the %s way, are wiped once read, and end when their clients leave",
    function* ([, type]) {
      const { url } = yield* TestService
      const { management_key } = yield* TestService.newTenant
      const { held } = yield* MemoryBudget
      const sentWith = (body: string, headers: ReadonlyArray<Header> = []) =>
        render({ method: "POST", path: collection, headers: [bearer(management_key), type, ...headers], body })
      const leaving = (bytes: Uint8Array, until: Effect.Effect<void, never, Scope.Scope>) =>
        Effect.scoped(
          Effect.andThen(
            Effect.flatMap(open(url), ({ write }) => write(bytes)),
            until
          )
        )
      yield* leaving(
        sentWith("x".repeat(8000), [["Content-Length", "9000"]]),
        eventually("what has arrived is held", () => held.body >= 8000)
      )
      yield* eventually("it is let go of", () => held.body === 0)

      const body = JSON.stringify({ ...minimal, name: "wiped" })
      for (const cut of [1, 0]) {
        const sent = sentWith(body, [["Connection", "close"]])
        const wiped = yield* wipedBy(answerTo(url, cut === 0 ? [sent] : [sent.subarray(0, -cut), sent.subarray(-cut)]))
        assert.include(wiped, body)
      }
      assert.strictEqual(held.body, 0)

      const before = left
      yield* leaving(
        sentWith(JSON.stringify({ ...minimal, name: "endless" })),
        Effect.asVoid(Effect.sleep("300 millis"))
      )
      yield* eventually("the create is given up", () => left === before + 1)
    }
  )
})

for (const [how, layer] of [
  ["logged", TestService.layerWith({ settings: (settings) => ({ ...settings, accessLog: true }) })],
  ["traced", Layer.provideMerge(TestService.layer, Recording.layer)]
] as const) {
  layerLive(layer)(`a service whose requests are ${how}`, (it) => {
    it.effect("answers all of them in the contract's way", function* () {
      const { url } = yield* TestService
      const { management_key } = yield* TestService.newTenant
      const sent = { method: "POST", path: collection, headers: [json], body: JSON.stringify(minimal) } as const
      const answer = yield* answerTo(url, [bytesOf(sent, [bearer(management_key)])])
      assert.deepStrictEqual([answer.status, answer.isPlain], [201, false])
    })
  })
}
