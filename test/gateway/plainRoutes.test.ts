import { Arbitrary, Context, Effect, Layer, Schema, Tracer } from "effect"
import { ReportAnswer, Route } from "../../src/gateway/GatewayApi.ts"
import * as GatewayServer from "../../src/gateway/GatewayServer.ts"
import { DatabaseFailure } from "../../src/port/DatabaseFailure.ts"
import { MemoryBudget } from "../../src/port/MemoryBudget.ts"
import { Router } from "../../src/service/routing/Router.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { createdId, unknownId } from "../support/http/Bodies.ts"
import { exchange, type Header, json, render, send } from "../support/http/HttpProbe.ts"
import { type Answer, open } from "../support/http/RawConnection.ts"
import { type Parts, TestService, withoutTable } from "../support/http/TestService.ts"
import { wipedBy } from "../support/http/wipedBy.ts"
import { elementOf, integer, oneOf } from "../support/memory/arbitraries.ts"
import { assert, layerLive } from "../support/it.ts"
import { eventually } from "../support/process/eventually.ts"
import { listening, own, socketPath } from "./socket.ts"

/** The same media type in another spelling, which is left to the other routes' way. */
const inFull: Header = ["Content-Type", "application/json; charset=utf-8"]

/** No status that parks a key: all routes here use the same ones. */
const anyValue = elementOf<unknown>([
  ...[null, true, false, 0, -1, 1.5, 200, 418, 503, 600, 600_001, "", "a/model", "2", "global", "azure"],
  ...[[], [null], ["a", 1, null], Array(21).fill("a"), {}, { provider: "azure" }, { abandoned: true }],
  "00000000-0000-7000-8000-000000000000"
])

/** Bodies with members that miss, have another value or are unknown, and some that are no JSON or no UTF-8. */
const bodiesFrom = (members: object) => {
  const names = [...Object.keys(members), "zdr"]
  const changes = Arbitrary.array(Arbitrary.all({ name: elementOf(names), value: anyValue }), { maxLength: 2 })
  const sent = Arbitrary.map(changes, (all) =>
    Buffer.from(JSON.stringify({ ...members, ...Object.fromEntries(all.map(({ name, value }) => [name, value])) }))
  )
  const broken = Arbitrary.map(Arbitrary.all({ body: sent, at: integer(0, 60) }), ({ at, body }) =>
    Buffer.concat([body.subarray(0, at), Buffer.from([0xff])])
  )
  const cut = Arbitrary.map(Arbitrary.all({ body: sent, at: integer(1, 60) }), ({ at, body }) => body.subarray(0, at))
  return oneOf<Buffer>(sent, sent, sent, broken, cut)
}

/** An answer without what is new in each: times, ids, and the date that only the other way sends. */
const comparable = ({ body, headers, status }: Answer) => {
  const { date: _date, "content-length": _length, "x-request-id": request_id, ...others } = headers
  assert.match(request_id ?? "", /^[\da-f-]{36}$/)
  return { status, headers: others, body: body.replace(/"(route|expires_at)":"[^"]*"/g, '"$1":""') }
}

const answers = [Schema.Struct({ data: Route }), Schema.Struct({ data: ReportAnswer })] as const

const key = "sk-first-0123456789-0123456789"
const defective = "a/defect"
const away = "an/away"
const endless = "an/endless"

let left = 0

/** Plans for three models fail as nobody expects, fail as they do without the database, and never end. */
const failing = Effect.map(Effect.context<Parts>(), (parts) => {
  const router = Context.get(parts, Router)
  const plan: typeof router.plan = (request, ...given) => {
    if (request.model === defective) return Effect.die(new Error("canary"))
    if (request.model === endless) return Effect.onInterrupt(Effect.never, () => Effect.sync(() => void (left += 1)))
    if (request.model !== away) return router.plan(request, ...given)
    return Effect.die(new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined }))
  }
  return Context.add(parts, Router, { ...router, plan })
})

layerLive(TestService.layerWith({ parts: failing }))("the two requests of every routed request", (it) => {
  it.effect("are overwritten once they are read", function* () {
    const path = yield* socketPath
    yield* listening(path)
    const body = JSON.stringify({ api_key: "byok_sk_unknown", model: "a/model", targets: [own] })
    const wiped = yield* wipedBy(send(path, { method: "POST", path: "/v1/routes", headers: [json], body }))
    assert.include(wiped, body)
  })

  it.effect("are answered as the contract's handlers answer them, whatever their bodies", function* () {
    const { account_id, create, workspace_id } = yield* TestService.newTenant
    for (const key of ["sk-first-0123456789-0123456789", "sk-other-0123456789-0123456789"]) {
      createdId(yield* create({ provider: "azure", key }))
    }
    const path = yield* socketPath
    yield* listening(path)
    const post = (route: string, type: Header, body: string | Uint8Array) =>
      send(path, { method: "POST", path: route, headers: [type], body })
    const route = { account_id, model: "a/model", targets: [own], explain: true, reports: [] }
    const opened = Effect.map(
      post("/v1/routes", json, JSON.stringify(route)),
      ({ body }) => /"route":"([^"]*)"/.exec(body)?.[1] ?? assert.fail(body)
    )
    const statuses = new Set<string>()
    /** Asks in both ways for what `place` prepares. */
    const both = (place: Effect.Effect<string>, which: 0 | 1) => (body: Buffer) =>
      Effect.gen(function* () {
        const [plain, other] = yield* Effect.all(
          [Effect.flatMap(place, (at) => post(at, json, body)), Effect.flatMap(place, (at) => post(at, inFull, body))],
          { concurrency: 2 }
        )
        assert.deepStrictEqual([plain.headers["date"], typeof other.headers["date"]], [undefined, "string"])
        assert.deepStrictEqual(comparable(plain), comparable(other), body.toString("latin1"))
        statuses.add(`${which} ${plain.status}`)
        if (plain.status < 300) Schema.decodeUnknownSync(answers[which])(JSON.parse(plain.body))
        return true
      })
    const attempts = Effect.map(opened, (id) => `/v1/routes/${id}/attempts/1`)
    const report = { status: 400, retry_after: null, codes: ["a"] }
    for (const [bodies, check] of [
      [bodiesFrom(route), both(Effect.succeed("/v1/routes"), 0)],
      [bodiesFrom(report), both(attempts, 1)]
    ] as const) {
      const checked = yield* Arbitrary.checkEffect(bodies, check, { runs: 150 })
      assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
    }
    for (const n of [2, 99_999_999_999_999]) {
      const wrong = Effect.map(opened, (id) => `/v1/routes/${id}/attempts/${n}`)
      yield* both(wrong, 1)(Buffer.from('{"status":200}'))
    }
    yield* both(
      Effect.succeed("/v1/routes/00000000-0000-4000-8000-000000000000/attempts/1"),
      1
    )(Buffer.from('{"status":200}'))
    const id = (yield* attempts).split("/")[3]
    for (const at of [`/v1/routes/${id}/attempts/1/more`, `/more/v1/routes/${id}/attempts/1`]) {
      const { headers, status } = yield* post(at, json, '{"status":200}')
      assert.deepStrictEqual([status, typeof headers["date"]], [404, "string"], at)
    }
    const anyRoute = (given: object) =>
      both(Effect.succeed("/v1/routes"), 0)(Buffer.from(JSON.stringify({ ...route, ...given })))
    const fresh = post("/v1/routes", json, JSON.stringify({ ...route, workspace_id, freshness_ms: 600_000 }))
    const known = yield* withoutTable("pools", Effect.andThen(anyRoute({}), fresh))
    assert.strictEqual(known.status, 201, "what is known is fresh enough")
    for (const model of [defective, away]) yield* anyRoute({ model })
    yield* both(Effect.succeed("/v1/routes"), 0)(Buffer.from(`\ufeff${JSON.stringify(route)}`))
    const refused = ["0 400", "0 500", "0 503", "1 400", "1 404", "1 409"]
    assert.deepStrictEqual([...statuses].sort(), ["0 201", "1 200", ...refused].sort())
  })

  it.effect("are planned no longer once the client has left", function* () {
    const path = yield* socketPath
    yield* listening(path)
    const body = JSON.stringify({ account_id: unknownId, model: endless, targets: [own] })
    yield* Effect.scoped(
      Effect.flatMap(open(path), ({ write }) =>
        write(render({ method: "POST", path: "/v1/routes", headers: [json], body }))
      )
    )
    yield* eventually("the plan is given up", () => left === 1)
  })

  it.effect("are left to the contract's handlers if they need more than their bodies, or are observed", function* () {
    const path = yield* socketPath
    yield* listening(path)
    const asked = (headers: ReadonlyArray<Header>, body: string | Uint8Array = "{}", method = "POST") =>
      render({ method, path: "/v1/routes", headers: [json, ["X-Request-Id", "mine"], ...headers], body })
    const chunked = asked([["Transfer-Encoding", "chunked"]], "2\r\n{}\r\n0\r\n\r\n")
    const hostless = Buffer.from(String(asked([])).replace(/Host: .*\r\n/, ""))
    const longest = " ".repeat(256 * 1024)
    for (const [bytes, status, isPlain] of [
      [asked([]), 400, true],
      [asked([], longest), 400, true],
      [asked([], `${longest} `), 413, false],
      [asked([["Content-Length", "0"]], ""), 400, false],
      [chunked, 400, false],
      [asked([["Content-Encoding", "gzip"]]), 400, false],
      [asked([["Host", "a, b"]]), 400, false],
      [hostless, 400, false],
      [asked([], "{}", "PUT"), 405, false]
    ] as const) {
      const { body, headers, ...answer } = yield* exchange(path, bytes)
      const what = `${bytes.toString("latin1", 0, 200)} ${body}`
      assert.deepStrictEqual([answer.status, headers["date"] === undefined], [status, isPlain], what)
      assert.strictEqual(headers["x-request-id"], "mine")
    }
    const spans: Array<Tracer.NativeSpan> = []
    const noted = (given: ConstructorParameters<typeof Tracer.NativeSpan>[0]) => {
      const span = new Tracer.NativeSpan(given)
      spans.push(span)
      return span
    }
    const observed = [
      Layer.build(Layer.fresh(GatewayServer.layer({ ...serverSettings, accessLog: true }, `${path}.logged`))),
      Effect.withTracer(listening(`${path}.traced`), Tracer.make({ span: noted }))
    ]
    for (const listens of observed) yield* listens
    const { account_id, create } = yield* TestService.newTenant
    createdId(yield* create({ provider: "azure", key }))
    const body = JSON.stringify({ account_id, model: "a/model", targets: [own] })
    const opened = (at: string) => send(at, { method: "POST", path: "/v1/routes", headers: [json], body })
    const plain = yield* opened(path)
    assert.include(plain.body, key)
    for (const one of ["logged", "traced"]) {
      let answer = plain
      const asking = Effect.map(opened(`${path}.${one}`), (given) => void (answer = given))
      assert.include(yield* wipedBy(asking), body, one)
      assert.isDefined(answer.headers["date"], one)
      assert.deepStrictEqual(comparable(answer), comparable(plain), one)
    }
    const traced = JSON.stringify(spans.map(({ attributes, events, name }) => [name, [...attributes], events]))
    assert.include(traced, "POST /v1/routes")
    for (const secret of [key, account_id]) assert.notInclude(traced, secret)
  })

  it.effect("hold memory for what has arrived of their bodies, until their clients leave", function* () {
    const { held } = yield* MemoryBudget
    const path = yield* socketPath
    yield* listening(path)
    const before = held.gateway
    for (const type of [json, inFull]) {
      const begun = Effect.gen(function* () {
        const headers = [type, ["Content-Length", "9000"]] as const
        yield* (yield* open(path)).write(
          render({ method: "POST", path: "/v1/routes", headers, body: "x".repeat(8000) })
        )
        yield* eventually("what has arrived is held", () => held.gateway >= before + 8000)
      })
      yield* Effect.scoped(begun)
      yield* eventually("it is let go of", () => held.gateway === before)
    }
  })
})
