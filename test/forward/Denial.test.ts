import { Effect, Redacted } from "effect"
import { join } from "node:path"
import { hashApiKey } from "../../src/runtime/ApiKey.ts"
import { bearer, type Header } from "../support/http/HttpProbe.ts"
import { samplesIn } from "../support/http/samplesIn.ts"
import { prometheusText } from "../../src/management/ManagementServer.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { ask as askGateway, listening } from "../gateway/socket.ts"
import { key, bad, slow, scene, keyIn, told, errorIn } from "./proxyScene.ts"

layerLive(TestService.layer)("a request of a proxy that gets no key", (it) => {
  it.effect(
    "denies with 429 and Retry-After while keys are limited, with 402 if none is usable, and says why",
    function* () {
      const { forward } = yield* scene(slow)
      const limited = yield* forward("openai", told(yield* forward(), 429, [["X-Byok-Retry-After", "30"]]))
      assert.strictEqual(limited.status, 429)
      assert.include(["29", "30"], limited.headers["retry-after"])
      assert.strictEqual((yield* forward()).status, 429)
      const none = yield* forward("groq")
      assert.deepStrictEqual(
        [none.status, errorIn(none)],
        [402, { code: 402, message: "No key of this provider is stored" }]
      )
      const rejected = yield* scene(bad)
      const spent = yield* rejected.forward("openai", told(yield* rejected.forward(), 401))
      const message = "No key of this provider can be used; parked: rejected"
      assert.deepStrictEqual([spent.status, errorIn(spent).message], [402, message])
      assert.strictEqual(spent.headers["x-byok-error"], `402 ${message}`)
      const failing = yield* scene(key)
      const failed = yield* failing.forward("openai", told(yield* failing.forward(), ""))
      assert.deepStrictEqual([failed.status, failed.headers["retry-after"]], [503, "1"], "no answer")
      const blamed = yield* failing.forward("openai", told(yield* failing.forward(), 422))
      assert.deepStrictEqual([blamed.status, errorIn(blamed).code], [422, 422])
      assert.strictEqual(keyIn(yield* failing.forward()), key, "neither parks the key")
    }
  )

  it.effect("has the status of ?deny with the real one in X-Byok-Error, which /v1/refused renders", function* () {
    const { ask, forward } = yield* scene(slow)
    yield* forward("openai", told(yield* forward(), 429, [["X-Byok-Retry-After", "30"]]))
    for (const [answer, real] of [
      [yield* forward("openai?deny=403"), 429],
      [yield* forward("groq?deny=403"), 402],
      [yield* ask("/v1/forward/openai?deny=403"), 401],
      [yield* forward("opnai?deny=403"), 400],
      [yield* forward("openai?deny=403", [["X-Byok-Attempt", "forged"]]), 400]
    ] as const) {
      assert.strictEqual(answer.status, 403)
      const said = answer.headers["x-byok-error"] ?? ""
      assert.match(said, new RegExp(`^${real} .+`))
      const wait = answer.headers["retry-after"] ?? ""
      const shown = yield* ask("/v1/refused", [
        ["X-Byok-Error", said],
        ["X-Byok-Retry-After", wait],
        ["X-Byok-Attempt", ""]
      ])
      assert.deepStrictEqual([shown.status, errorIn(shown).code], [real, real])
      assert.include(said, errorIn(shown).message)
      assert.strictEqual(shown.headers["retry-after"] ?? "", wait)
    }
    const unknown = yield* forward("opnai?deny=403")
    assert.include(unknown.headers["x-byok-error"], "provider must be a known provider slug; the nearest is openai")
    assert.strictEqual((yield* ask("/v1/refused")).status, 503, "nothing is known")
    for (const forged of ["200 fine", "402", "nonsense", "402 \u00c3"]) {
      assert.strictEqual((yield* ask("/v1/refused", [["X-Byok-Error", forged]])).status, 503, forged)
    }
    for (const deny of ["200", "4030", ""]) {
      assert.strictEqual((yield* forward(`groq?deny=${deny}`)).status, 402, "only a status of a denial")
    }
  })

  it.effect(
    "by /v1/refused sends clients back while another key is left, and ends with the final status",
    function* () {
      const { ask, forward } = yield* scene(bad, slow)
      const first = yield* forward()
      // Caddy and HAProxy send the provider's key along.
      const again = yield* ask("/v1/refused", [bearer(bad), ...told(first, 401)])
      assert.deepStrictEqual(
        [again.status, again.headers["x-should-retry"], again.headers["retry-after-ms"]],
        [503, "true", "1"]
      )
      const second = yield* forward()
      assert.strictEqual(keyIn(second), slow)
      const last = yield* ask("/v1/refused", told(second, 429, [["X-Byok-Retry-After", "30"]]), "POST")
      assert.deepStrictEqual([last.status, last.headers["x-should-retry"]], [429, "false"])
      assert.include(["29", "30"], last.headers["retry-after"])
      const { ask: report, forward: other } = yield* scene(key)
      const success = yield* report("/v1/refused", told(yield* other(), 200))
      assert.deepStrictEqual([success.status, success.body], [200, ""])
      const failed = yield* report("/v1/refused", told(yield* other(), 500))
      assert.deepStrictEqual(
        [failed.status, failed.headers["x-should-retry"]],
        [503, "false"],
        "the same key comes next"
      )
      const forged = yield* report("/v1/refused", [
        ["X-Byok-Attempt", "forged"],
        ["X-Byok-Status", "401"]
      ])
      assert.strictEqual(forged.status, 400)
      assert.strictEqual(keyIn(yield* other()), key, "parks nothing")
    }
  )

  it.effect("denies unknown, revoked and managing API keys, also with an attempt of another one (Q19)", function* () {
    const { ask, caller, forward, path, tenant } = yield* scene(bad, key)
    const gateway = join(path, "../gateway.sock")
    yield* listening(gateway)
    const attempt = told(yield* forward(), 401)
    const other = yield* tenant.ordinaryKey
    const stranger = yield* (yield* TestService.newTenant).ordinaryKey
    for (const [sender, status, message] of [
      [[], 401, "Missing Authentication header"],
      [[bearer(caller), bearer(caller)], 401, "Missing Authentication header"],
      [[["Authorization", `Basic ${caller}`] as const], 401, "Missing Authentication header"],
      [[bearer("byok_ak_unknown")], 401, "Invalid API key"],
      [[bearer(tenant.management_key)], 403, "This API key cannot route requests"]
    ] as const) {
      const answer = yield* ask("/v1/forward/openai", sender)
      assert.deepStrictEqual([answer.status, errorIn(answer).message], [status, message])
    }
    for (const sender of [other, stranger, bad]) {
      for (const said of [attempt, [attempt[0] as Header, ["X-Byok-Status", "200"] as const]]) {
        const answer = yield* ask("/v1/forward/openai", [bearer(sender), ...said])
        assert.strictEqual(answer.status, 400)
        assert.include(answer.body, "must be the attempt of an answer within the last hour, for the same API key")
      }
    }
    assert.strictEqual(keyIn(yield* forward()), bad, "none of them parked it")
    const hash = hashApiKey(Redacted.make(caller))
    const { status } = yield* askGateway(gateway, "DELETE", `/v1/accounts/${tenant.account_id}/api-keys/${hash}`)
    assert.strictEqual(status, 200)
    assert.strictEqual((yield* forward("openai", attempt)).status, 401, "the key is looked up for each attempt")
  })

  it.effect("refuses values with control characters, too long or malformed, with the header's name (D7)", function* () {
    const { forward } = yield* scene(key)
    const long = "x".repeat(256)
    for (const [target, headers, issue] of [
      ["openai?model=a%0D%0AX-Byok-User:%20root", [], "model must have no control characters"],
      ["openai?model=%C3", [], "model must have no control characters"],
      [`openai?model=${long}`, [], "model must have at most 255 characters"],
      ["openai", [["X-Byok-User", long]], "X-Byok-User must have at most 255 characters"],
      ["openai", [["X-Byok-User", "a\tb"]], "X-Byok-User must have no control characters"],
      ["openai", [["X-Byok-Workspace", "mine"]], "X-Byok-Workspace must be a UUID"],
      ["openai", [["X-Byok-Host", "asia"]], "X-Byok-Host must be global, europe or us"],
      ["chatgpt", [], "provider must be a known provider slug; the nearest is openai"]
    ] as const) {
      const answer = yield* forward(target, headers)
      assert.strictEqual(answer.headers["x-byok-error"], `400 Invalid request parameters: ${issue}`)
      assert.strictEqual(answer.status, 400)
    }
  })

  it.effect("counts answers by provider and result", function* () {
    const samples = Effect.map(Effect.context(), (context) => samplesIn(prometheusText(context)))
    const countOf = (before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>) =>
      Object.fromEntries(
        Array.from(after).flatMap(([name, value]) => {
          const [, provider, result] = /^byok_forwards_total\{provider="(.+)",result="(.+)"\}/.exec(name) ?? []
          const more = value - (before.get(name) ?? 0)
          return provider === undefined || more === 0 ? [] : [[`${provider} ${result}`, more]]
        })
      )
    const { ask, forward } = yield* scene({ provider: "xai", key: slow })
    const before = yield* samples
    const first = yield* forward("xai")
    yield* forward("xai", told(first, 200))
    yield* forward("xai", told(first, 422))
    yield* forward("xai", told(first, 429))
    yield* forward("xai")
    yield* forward("groq")
    yield* ask("/v1/forward/xai")
    yield* forward("grok")
    assert.deepStrictEqual(countOf(before, yield* samples), {
      "xai key": 1,
      "xai reported": 1,
      "xai refused": 1,
      "xai rate_limited": 2,
      "xai unauthorized": 1,
      "groq no_key": 1,
      "unknown invalid": 1
    })
  })
})
