import { connect } from "node:net"
import { Effect, Redacted } from "effect"
import { hashApiKey } from "../../src/runtime/ApiKey.ts"
import { MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { createdId } from "../support/http/Bodies.ts"
import { json, render } from "../support/http/HttpProbe.ts"
import type { Issue } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"
import { ask, openSocket, own } from "./socket.ts"

const key = "sk-0123456789-0123456789-AbCd"
const bad = "sk-rejected-0123456789-0123456789"

interface Refused {
  readonly error: { readonly code: number; readonly metadata?: { readonly issues: ReadonlyArray<Issue> } }
}
interface Answer {
  readonly outcome: string | null
  readonly next: { readonly attempt: string; readonly step: string; readonly key?: string } | null
  readonly retry_at: string | null
  readonly providers?: ReadonlyArray<object>
  readonly reports?: ReadonlyArray<{ readonly outcome: string } | Refused>
}

/** An account with two keys, of which upstreams reject the first, and calls of a gateway of it. */
const scene = Effect.gen(function* () {
  const tenant = yield* TestService.newTenant
  const ids: Array<string> = []
  for (const one of [bad, key]) ids.push(createdId(yield* tenant.create({ provider: "azure", key: one })))
  const path = yield* openSocket
  const asked = { account_id: tenant.account_id, model: "a/model", targets: [own] }
  const post = (route: string, body: object) =>
    Effect.map(ask(path, "POST", `/v1/${route}`, body), ({ status, text }) => {
      assert.strictEqual(status, 200, text)
      return { text, ...(JSON.parse(text) as { readonly data: Answer }).data }
    })
  const next = (members: object = {}) => post("attempts", { ...asked, ...members })
  const report = (...reports: ReadonlyArray<object>) =>
    Effect.map(post("reports", { reports }), ({ reports }) => reports ?? assert.fail("no results"))
  return { tenant, ids, path, asked, next, report }
})

const attemptOf = ({ next }: Answer) => next?.attempt ?? assert.fail("no attempt")

layerLive(TestService.layer)("an attempt over the socket", (it) => {
  it.effect("follows the one before until a key is accepted, and parks a rejected one", function* () {
    const { asked, next, path } = yield* scene
    const first = yield* next()
    assert.deepStrictEqual([first.outcome, first.next?.key, first.next?.step], [null, bad, "own"])
    const after = { attempt: attemptOf(first), status: 401 }
    const second = yield* next({ after })
    assert.deepStrictEqual([second.outcome, second.next?.key], ["rejected", key])
    assert.isAbove(attemptOf(second).length, attemptOf(first).length, "the past is in the text")
    assert.strictEqual((yield* next({ after })).next?.key, key, "a repeated call goes on in the same way")
    const last = yield* next({ after: { attempt: attemptOf(second), status: 200 } })
    assert.strictEqual(last.text, '{"data":{"outcome":"succeeded","next":null,"retry_at":null}}')
    const again = yield* next({ explain: true })
    assert.strictEqual(again.next?.key, key)
    assert.include(again.text, '"reason":"parked","cause":"rejected","until":"2')
    const none = yield* next({ after: { attempt: attemptOf(again), status: 402, took_ms: 5 } })
    assert.deepStrictEqual([none.outcome, none.next, none.providers?.length], ["quota_exhausted", null, 1])
    assert.isString(none.retry_at)
    const nobody = { ...asked, account_id: "00000000-0000-7000-8000-000000000000" }
    const unknown = yield* ask(path, "POST", "/v1/attempts", nobody)
    assert.match(unknown.text, /"code":400.*"path":\["account_id"\],"message":"is no account, or its default/)
  })

  it.effect("is refused with an unknown, altered or foreign text, before any key is leased", function* () {
    const { asked, next, path, tenant } = yield* scene
    const stranger = yield* TestService.newTenant
    createdId(yield* stranger.create({ provider: "azure", key }))
    const text = attemptOf(yield* next())
    const altered = `${text.slice(0, 40)}${text[40] === "A" ? "B" : "A"}${text.slice(41)}`
    const refusals: ReadonlyArray<readonly [string, object]> = [
      ["none", {}],
      ["", {}],
      [altered, {}],
      [`${text}=`, {}],
      [text.slice(0, -1), {}],
      [text, { account_id: stranger.account_id }],
      [text, { account_id: undefined, api_key: yield* stranger.ordinaryKey }]
    ]
    for (const [attempt, named] of refusals) {
      const body = { ...asked, ...named, after: { attempt, status: 500 } }
      const answer = yield* ask(path, "POST", "/v1/attempts", body)
      assert.strictEqual(answer.status, 400)
      assert.include(answer.text, '"path":["after","attempt"],"message":"must be the attempt of an answer within')
      assert.notInclude(answer.text, key)
    }
    const own = { account_id: undefined, api_key: yield* tenant.ordinaryKey }
    assert.strictEqual((yield* next({ ...own, after: { attempt: text, status: 500 } })).next?.key, key, "control")
  })

  it.effect("of a revoked API key is 401, and one without capacity left offers no shared capacity (Q19)", function* () {
    const { next, path, tenant, asked } = yield* scene
    const api_key = yield* tenant.ordinaryKey
    const named = { ...asked, account_id: undefined, api_key }
    const first = yield* next(named)
    const hash = hashApiKey(Redacted.make(api_key))
    const revoked = yield* ask(path, "DELETE", `/v1/accounts/${tenant.account_id}/api-keys/${hash}`)
    assert.strictEqual(revoked.status, 200)
    const after = { attempt: attemptOf(first), status: 500 }
    assert.strictEqual((yield* ask(path, "POST", "/v1/attempts", { ...named, after })).status, 401)
    const final = { ...named, after: { ...after, status: 200 } }
    assert.strictEqual((yield* next(final)).outcome, "succeeded", "asks for no key")
  })

  it.effect("checks again that credentials allow the gateway's own capacity before it offers that (Q19)", function* () {
    const { ids, next, tenant } = yield* scene
    const shared = { targets: [{ provider: "azure" }] }
    const first = yield* next(shared)
    const second = yield* next({ ...shared, after: { attempt: attemptOf(first), status: 401 } })
    const after = { attempt: attemptOf(second), status: 401 }
    const control = yield* next({ ...shared, after })
    assert.deepStrictEqual([control.next?.step, control.next?.key], ["shared", undefined], "control")
    yield* tenant.update(ids[0] ?? "", { is_required: true })
    assert.isNull((yield* next({ ...shared, after })).next)
    const answered = yield* next({ ...shared, after: { attempt: attemptOf(control), status: 200 } })
    assert.strictEqual(answered.outcome, "succeeded")
  })

  it.effect("counts although its sender disconnects, and once however often it is repeated", function* () {
    const { asked, next, path } = yield* scene
    const after = { attempt: attemptOf(yield* next()), status: 401 }
    const body = JSON.stringify({ ...asked, after })
    const request = render({ method: "POST", path: "/v1/attempts", headers: [json], body })
    const client = connect(path, () => client.write(request, () => client.destroy()))
    yield* eventually("the report counts", next(), ({ text }) => text.includes(key))
    const until = Effect.map(next({ explain: true }), ({ text }) =>
      Date.parse(/"until":"([^"]+)"/.exec(text)?.[1] ?? "")
    )
    // The database's clock begins a little later, once it stores the parking.
    yield* Effect.sleep("1 second")
    const before = yield* until
    assert.strictEqual((yield* next({ after })).next?.key, key)
    yield* Effect.sleep("1 second")
    assert.isBelow(Math.abs((yield* until) - before), 500, "without took_ms, the first arrival counts")
  })

  it.effect("reads codes in the body of an error, whatever else that holds", function* () {
    const { next } = yield* scene
    const attempt = attemptOf(yield* next())
    const body = JSON.stringify([{ error: { code: 1, details: [{ reason: "API_KEY_INVALID" }] } }])
    assert.strictEqual((yield* next({ after: { attempt, status: 400, body } })).outcome, "rejected")
    const spent = { attempt, status: 429, body: '{"error":{"code":"insufficient_quota"}}', retry_after: null }
    assert.strictEqual((yield* next({ after: spent })).outcome, "quota_exhausted")
    for (const other of ["", "<html>", "null", '"insufficient_quota"', "x".repeat(50_000), null])
      assert.strictEqual((yield* next({ after: { attempt, status: 429, body: other } })).outcome, "rate_limited")
    for (const [said, outcome] of [
      [{ status: 999 }, "upstream_failed"],
      [{ status: null }, "upstream_failed"],
      [{ abandoned: true }, "abandoned"]
    ] as const)
      assert.strictEqual((yield* next({ after: { attempt, ...said } })).outcome, outcome)
  })

  it.effect("takes reports along or alone, each accepted or refused by itself", function* () {
    const { asked, next, path, report } = yield* scene
    const one = attemptOf(yield* next())
    const other = attemptOf(yield* next())
    const mixed = [
      { attempt: one, status: 401 },
      { attempt: "none", status: 200 },
      { attempt: other, status: "200", zdr: true },
      { attempt: other }
    ]
    const { next: rest, reports = [] } = yield* next({ reports: mixed })
    assert.strictEqual(rest?.key, key, "the reports count for this plan")
    for (const results of [reports, yield* report(...mixed)]) {
      const [taken, ...refused] = results
      assert.deepStrictEqual(taken, { outcome: "rejected" })
      const paths = refused.map((result) => ("error" in result ? (result.error.metadata?.issues ?? []) : []))
      assert.deepStrictEqual(
        paths.map((issues) => issues.map(({ path }) => path)),
        [[["attempt"]], [["zdr"], ["status"]], [[]]]
      )
    }
    const tooMany = { ...asked, reports: Array(101).fill({ attempt: one, status: 200 }) }
    for (const route of ["attempts", "reports"]) {
      const body = route === "attempts" ? tooMany : { reports: tooMany.reports }
      assert.include((yield* ask(path, "POST", `/v1/${route}`, body)).text, "must be a list of at most 100")
    }
    assert.deepStrictEqual(yield* report(), [])
  })

  it.effect("gives a key on trial to one request, again if its call is repeated, until its report (Q24)", function* () {
    const path = yield* openSocket
    const lone = yield* TestService.newTenant
    createdId(yield* lone.create({ provider: "azure", key }))
    const call = { account_id: lone.account_id, model: "a/model", targets: [own] }
    const next = (members: object = {}) =>
      Effect.map(
        ask(path, "POST", "/v1/attempts", { ...call, ...members }),
        ({ text }) => (JSON.parse(text) as { readonly data: Answer }).data
      )
    yield* next({ after: { attempt: attemptOf(yield* next()), status: 429, retry_after: "0.01" } })
    const mine = { request_id: "mine" }
    yield* Effect.sleep(50)
    const tried = yield* next(mine)
    assert.strictEqual((yield* next(mine)).next?.key, key, "a repeated call")
    const [busy, another] = [yield* next(), yield* next({ request_id: "another" })]
    assert.deepStrictEqual([busy.next, another.next], [null, null])
    assert.isString(busy.retry_at)
    yield* next({ after: { attempt: attemptOf(tried), status: 200 } })
    assert.strictEqual((yield* next()).next?.key, key)
  })

  it.effect("answers verdicts from memory that is reserved until they are sent (T9)", function* () {
    const { next } = yield* scene
    const { held } = yield* MemoryBudget
    const before = held.gateway
    assert.lengthOf((yield* next({ explain: true })).providers ?? [], 1)
    yield* eventually("it is released", () => held.gateway === before)
  })
})
