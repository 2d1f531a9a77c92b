import { connect } from "node:net"
import { Effect } from "effect"
import { fakeUpstream } from "../examples/FakeUpstream.ts"
import { raisePools } from "../support/database/raisePools.ts"
import { createdId } from "../support/http/Bodies.ts"
import { json, render, send } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"
import { listening, socketPath } from "./socket.ts"

const rejected = "sk-rejected-0123456789-0123456789"
const second = "sk-second-good-0123456789-0123456789"
const gatewaysOwn = "sk-gateways-own-0123456789-0123456789"

interface Answer {
  readonly route: string
  readonly next: { readonly attempt: number; readonly step: "own" | "shared"; readonly key?: string } | null
  readonly providers: object
}

const post = (path: string, body: object) => ({ method: "POST", path, headers: [json], body: JSON.stringify(body) })

/** A customer's account, an upstream that rejects one key, and a gateway that asks over the socket. */
const scene = Effect.fnUntraced(function* (shared: boolean) {
  const tenant = yield* TestService.newTenant
  const upstream = yield* fakeUpstream((key, response) => response.writeHead(key === rejected ? 401 : 200).end())
  const path = yield* socketPath
  yield* listening(path)
  const ask = (route: string, body: object) =>
    Effect.map(send(path, post(route, body)), (answer) => {
      assert.include([200, 201], answer.status, answer.body)
      return (JSON.parse(answer.body) as { readonly data: Answer }).data
    })
  const { account_id } = tenant
  const targets = [{ provider: "openai", endpoint: { shared } }]
  return {
    tenant,
    path,
    seen: upstream.seen,
    create: (key: string, flags: object = {}) =>
      Effect.map(tenant.create({ provider: "openai", key, ...flags }), createdId),
    /** Opens a route. Those that are open then know of any change to the account: otherwise it takes a second (Q19). */
    open: ask("/v1/routes", { account_id, model: "openai/gpt-4o", targets, explain: true }),
    /** Sends the request to the upstream, and reports what it answered. */
    attempt: (route: string, next: Answer["next"]) =>
      Effect.gen(function* () {
        const { attempt, key = gatewaysOwn } = next ?? assert.fail("no attempt is open")
        const headers = { authorization: `Bearer ${key}` }
        const { status } = yield* Effect.promise(() => fetch(upstream.url, { method: "POST", headers }))
        return yield* ask(`/v1/routes/${route}/attempts/${attempt}`, { status })
      })
  }
})

layerLive(TestService.layer)("over the socket, a route", (it) => {
  it.effect("checks again that shared capacity is allowed before using it (Q19)", function* () {
    const { attempt, create, open, tenant } = yield* scene(true)
    const id = yield* create(rejected)
    const [first, control] = [yield* open, yield* open]
    assert.strictEqual((yield* attempt(control.route, control.next)).next?.step, "shared", "control")
    yield* tenant.update(id, { is_required: true })
    yield* open
    assert.isNull((yield* attempt(first.route, first.next)).next)
  })

  it.effect("offers neither the key nor shared capacity after SQL edited a flag (Q10, Q20, E16)", function* () {
    const { sql } = yield* TestService
    const { attempt, create, open, seen } = yield* scene(true)
    yield* create(rejected, { is_fallback: true })
    const id = yield* create(second, { is_required: true })
    const { next, route } = yield* open
    assert.strictEqual(next?.key, second)
    yield* sql`UPDATE credentials SET is_required = false WHERE id = ${id}`
    yield* raisePools(sql)
    const altered = yield* open
    assert.strictEqual(altered.next?.key, rejected, "keys that are as they were stay")
    assert.include(JSON.stringify(altered.providers), `{"reason":"seal","seal":"altered"`)
    assert.isNull((yield* attempt(altered.route, altered.next)).next)
    assert.deepStrictEqual(seen(), [rejected])
    yield* sql`UPDATE credentials SET is_required = true WHERE id = ${id}`
    yield* raisePools(sql)
    assert.strictEqual((yield* open).next?.key, second, "control: as it was")
    assert.isNull((yield* attempt(route, next)).next)
  })

  it.effect("abandoned by its client shows nothing about its key, and takes no more reports (Q27)", function* () {
    const { create, open, path } = yield* scene(false)
    yield* create(rejected)
    const { route } = yield* open
    assert.strictEqual((yield* send(path, { method: "DELETE", path: `/v1/routes/${route}` })).status, 200)
    const late = yield* send(path, post(`/v1/routes/${route}/attempts/1`, { status: 401 }))
    assert.strictEqual(late.status, 404)
    const again = yield* open
    assert.strictEqual(again.next?.key, rejected)
    yield* send(path, post(`/v1/routes/${again.route}/attempts/1`, { abandoned: true }))
    assert.strictEqual((yield* open).next?.key, rejected)
  })

  it.effect("takes a report whose sender disconnects, and repeats the answer", function* () {
    const { create, open, path } = yield* scene(false)
    yield* create(rejected)
    yield* create(second)
    const { route } = yield* open
    const report = post(`/v1/routes/${route}/attempts/1`, { status: 401 })
    yield* Effect.promise(
      () =>
        new Promise<void>((resolve) => {
          const socket = connect(path, () => socket.write(render(report), () => socket.destroy()))
          socket.once("close", () => resolve())
        })
    )
    const taken = Effect.map(open, ({ next }) => next?.key)
    yield* eventually("the report counts", taken, (key) => key === second)
    const repeated = yield* send(path, { ...report, body: JSON.stringify({ status: 200 }) })
    assert.include(repeated.body, '"outcome":"rejected","next":{"attempt":2,"step":"own"')
    assert.include(repeated.body, second)
  })
})
