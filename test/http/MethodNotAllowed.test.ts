import { connect } from "node:net"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { minimal, unknownId } from "../support/http/Bodies.ts"
import { json, render, send } from "../support/http/HttpProbe.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const collection = "/api/v1/byok"
const item = `/api/v1/byok/${unknownId}`
const others = ["PUT", "OPTIONS", "TRACE", "PROPFIND", "QUERY"]
const ofCollection = "GET, HEAD, POST"
const ofItem = "GET, HEAD, PATCH, DELETE"

const cases: ReadonlyArray<readonly [method: string, path: string, allow: string]> = [
  ...["PATCH", "DELETE", ...others].map((method) => [method, collection, ofCollection] as const),
  ...["POST", ...others].map((method) => [method, item, ofItem] as const),
  ...["/", "/health/live", "/health/ready", "/docs", "/openapi.json"].flatMap((path) =>
    ["POST", "PATCH", "DELETE", ...others].map((method) => [method, path, "GET, HEAD"] as const)
  ),
  ["PUT", "/api/v1/byok/plan", "GET, HEAD, POST, PATCH, DELETE"],
  ["PUT", "/api/v1/byok/nonsense", ofItem],
  ["PUT", "/api/v1/byok/%zz", ofItem],
  ["PUT", `/api/v1/byok/${"a".repeat(10_000)}`, ofItem],
  ["PUT", "http://elsewhere.test/api/v1/byok", ofCollection],
  ["PUT", "/api/v1/byok?method=POST", ofCollection]
]

layerLive(TestService.layer)("405 (D10, L3)", (it) => {
  it.effect.each(cases)("%s %s allows %s (D10)", ([method, path, allow]) =>
    Effect.gen(function* () {
      const { send } = yield* TestService.tenant
      const asked = send({ method, path, headers: [json], body: JSON.stringify(minimal) })
      const answer = yield* TestService.storing(0, asked)
      assertRefused(answer, "MethodNotAllowed")
      assert.strictEqual(answer.headers["allow"], allow)
      assertRefused(yield* TestService.send({ method, path }), "MethodNotAllowed")
    })
  )

  it.effect("is not the answer to HEAD where GET is: that gets the same head, without a body (L3)", () =>
    Effect.gen(function* () {
      const { list, send } = yield* TestService.tenant
      const listed = yield* list()
      const answer = yield* send({ method: "HEAD", path: collection })
      assert.strictEqual(answer.status, 200)
      assert.strictEqual(answer.headers["content-length"], String(listed.body.length))
      assert.strictEqual((yield* TestService.send({ method: "HEAD", path: collection })).status, 401)
    })
  )

  it.effect("CONNECT opens no tunnel, and its request id is taken over (D10, D12)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      for (const path of ["elsewhere.test:443", "127.0.0.1:22", collection]) {
        const answer = yield* send(url, { method: "CONNECT", path, headers: [["X-Request-Id", "connect-1"]] })
        assertRefused(answer, "MethodNotAllowed")
        assert.strictEqual(answer.headers["x-request-id"], "connect-1")
        assert.isDefined(answer.headers["allow"])
        assert.strictEqual(answer.headers["connection"], "close")
      }
    })
  )

  it.effect("CONNECT from a client that leaves at once does no harm (T9)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { hostname, port } = new URL(url)
      const gone = Effect.callback<boolean>((resume) => {
        const socket = connect(Number(port), hostname, () => {
          socket.write(render({ method: "CONNECT", path: "elsewhere.test:443" }))
          setImmediate(() => socket.resetAndDestroy())
        })
        socket.on("error", () => {}).on("close", () => resume(Effect.succeed(true)))
      })
      yield* Effect.all(Array(200).fill(gone) as Array<typeof gone>, { concurrency: 4 })
      assert.strictEqual((yield* send(url, { path: "/health/live" })).status, 200)
    })
  )

  it.effect("a method in X-HTTP-Method-Override is ignored (D10)", () =>
    Effect.gen(function* () {
      const { send } = yield* TestService.tenant
      const headers = [["X-HTTP-Method-Override", "GET"]] as const
      assertRefused(yield* send({ method: "POST", path: item, headers }), "MethodNotAllowed")
    })
  )
})
