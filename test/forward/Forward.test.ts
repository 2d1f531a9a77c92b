import { Effect, Layer, Redacted } from "effect"
import { decodeJwt } from "jose"
import { join } from "node:path"
import { hashApiKey } from "../../src/runtime/ApiKey.ts"
import * as ForwardServer from "../../src/forward/ForwardServer.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { createdId } from "../support/http/Bodies.ts"
import { bearer, type Header, json, send } from "../support/http/HttpProbe.ts"
import { samplesIn } from "../support/http/samplesIn.ts"
import { prometheusText } from "../../src/management/ManagementServer.ts"
import { TestService } from "../support/http/TestService.ts"
import { accessKey, serviceAccount } from "../support/keys/cloudKeys.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, layerLive } from "../support/it.ts"
import { ask as askGateway, listening } from "../gateway/socket.ts"

const key = "sk-0123456789-0123456789-AbCd"
const bad = "sk-rejected-0123456789-0123456789"
const slow = "sk-limited-0123456789-0123456789"

/** A socket for proxies, and an account with an API key of a caller. */
const scene = Effect.fnUntraced(function* (...bodies: ReadonlyArray<string | object>) {
  const tenant = yield* TestService.newTenant
  for (const one of bodies) {
    createdId(yield* tenant.create(typeof one === "string" ? { provider: "openai", key: one } : one))
  }
  const path = join(yield* temporaryDirectory, "forward.sock")
  yield* Layer.build(Layer.fresh(ForwardServer.layer(serverSettings, path)))
  const caller = yield* tenant.ordinaryKey
  const ask = (target: string, headers: ReadonlyArray<Header> = [], method = "GET") =>
    send(path, { method, path: target, headers })
  const forward = (target = "openai", headers: ReadonlyArray<Header> = [], method?: string) =>
    ask(`/v1/forward/${target}`, [bearer(caller), ...headers], method)
  return { tenant, path, caller, ask, forward }
})

type Answer = Effect.Success<ReturnType<typeof send>>

const keyIn = ({ body, headers, status }: Answer) => {
  assert.deepStrictEqual([status, body, headers["cache-control"]], [200, "", "no-store"])
  return headers["authorization"]?.replace("Bearer ", "")
}
const attemptIn = ({ headers }: Answer) => headers["x-byok-attempt"] ?? assert.fail("no attempt")
const told = (answer: Answer, status: number | string, more: ReadonlyArray<Header> = []): ReadonlyArray<Header> => [
  ["X-Byok-Attempt", attemptIn(answer)],
  ["X-Byok-Status", String(status)],
  ...more
]
const errorIn = ({ body }: Answer) =>
  (JSON.parse(body) as { error: { code: number; message: string; metadata?: { issues: ReadonlyArray<object> } } }).error

layerLive(TestService.layer)("the socket for proxies", (it) => {
  it.effect(
    "answers any method and any path below with the key's header alone, and never reads the body",
    function* () {
      const { caller, forward, path } = yield* scene(key)
      for (const [target, method] of [
        ["openai", "GET"],
        ["openai", "POST"],
        ["openai", "DELETE"],
        ["openai/v1/chat/completions?stream=true", "POST"],
        ["openai/", "OPTIONS"]
      ] as const) {
        const answer = yield* forward(target, [], method)
        assert.strictEqual(keyIn(answer), key)
        const known = ["authorization", "cache-control", "connection", "content-length", "date", "keep-alive"]
        assert.sameMembers(
          Object.keys(answer.headers).filter((name) => !known.includes(name)),
          ["x-byok-attempt", "x-request-id"]
        )
      }
      // A body that never comes.
      const headers = [bearer(caller), ["Content-Length", "9"]] as const
      assert.strictEqual(keyIn(yield* send(path, { method: "POST", path: "/v1/forward/openai", headers })), key)
    }
  )

  it.effect(
    "takes the caller's key from the header of any provider, and answers in that of the requested one",
    function* () {
      const providers = [
        ["openai", "authorization", `Bearer ${key}`],
        ["anthropic", "x-api-key", key],
        ["azure", "api-key", key],
        ["google-ai-studio", "x-goog-api-key", key],
        ["amazon-bedrock%2Fclaude-on-aws", "authorization", `Bearer ${key}`]
      ] as const
      const stored = providers.map(([provider]) => ({ provider: decodeURIComponent(provider), key }))
      const { ask, caller } = yield* scene(...stored)
      const senders: ReadonlyArray<Header> = [
        bearer(caller),
        ["X-Api-Key", caller],
        ["Api-Key", caller],
        ["X-Goog-Api-Key", caller]
      ]
      const names: ReadonlyArray<string> = ["authorization", "x-api-key", "api-key", "x-goog-api-key"]
      for (const [provider, name, value] of providers) {
        for (const sender of senders) {
          const { headers, status } = yield* ask(`/v1/forward/${provider}`, [sender])
          assert.strictEqual(status, 200)
          assert.deepStrictEqual(
            names.flatMap((each) => (headers[each] === undefined ? [] : [[each, headers[each]]])),
            [[name, value]]
          )
        }
      }
    }
  )

  it.effect(
    "unwraps JSON keys, keeps bytes, and gives tokens instead of cloud keys that sign, never these (D58)",
    function* () {
      const unusual = "sk-ünusual-0123456789-0123456789"
      const long = `sk-${"x".repeat(8_000)}`
      const { forward } = yield* scene(
        { provider: "openai", key: JSON.stringify({ api_key: key, region: "eu" }) },
        {
          provider: "azure",
          key: JSON.stringify([{ api_key: key, endpoint_url: "https://one.example", model_slug: "a/b" }])
        },
        { provider: "google-vertex", key: JSON.stringify(serviceAccount) },
        { provider: "amazon-bedrock", key: JSON.stringify(accessKey) },
        { provider: "mistral", key: unusual },
        { provider: "cohere", key: long },
        { provider: "groq", key: JSON.stringify(serviceAccount) }
      )
      assert.strictEqual(keyIn(yield* forward("openai")), key)
      assert.strictEqual((yield* forward("azure")).headers["api-key"], key)
      assert.strictEqual(decodeJwt(keyIn(yield* forward("google-vertex")) ?? "").iss, serviceAccount.client_email)
      assert.match(keyIn(yield* forward("amazon-bedrock")) ?? "", /^bedrock-api-key-/)
      const sent = keyIn(yield* forward("mistral")) ?? ""
      assert.strictEqual(Buffer.from(sent, "latin1").toString(), unusual)
      assert.strictEqual(keyIn(yield* forward("cohere")), long)
      const unsigned = yield* forward("groq")
      assert.strictEqual(unsigned.status, 402)
      assert.notInclude(JSON.stringify(unsigned), serviceAccount.client_email)
    }
  )

  it.effect("goes on to the next key after a refusal, reads the last status, and parks the refused ones", function* () {
    const { forward } = yield* scene(slow, bad, key)
    const first = yield* forward()
    assert.strictEqual(keyIn(first), slow)
    const second = yield* forward("openai", told(first, 429, [["X-Byok-Retry-After", "30"]]))
    assert.strictEqual(keyIn(second), bad)
    const third = yield* forward("openai", told(second, "429 : 401"))
    assert.strictEqual(keyIn(third), key)
    const reported = yield* forward("openai", told(third, "429 : 401 : 200"))
    assert.deepStrictEqual([keyIn(reported), reported.headers["x-byok-attempt"]], [undefined, ""])
    assert.strictEqual(keyIn(yield* forward()), key, "the others are parked")
  })

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

  it.effect("lets one request try a key after its cooldown, and tells the others to come back", function* () {
    const { forward } = yield* scene(slow)
    yield* forward("openai", told(yield* forward(), 429, [["X-Byok-Retry-After", "1"]]))
    yield* Effect.sleep("1100 millis")
    const trial = yield* forward()
    assert.strictEqual(keyIn(trial), slow)
    const other = yield* forward()
    assert.deepStrictEqual([other.status, other.headers["retry-after"]], [503, "1"])
    yield* forward("openai", told(trial, 200))
    assert.strictEqual(keyIn(yield* forward()), slow)
  })

  it.effect("lets every request try a key after its cooldown if the proxy reports only refusals", function* () {
    const { forward } = yield* scene(slow)
    const refusedNext = (headers?: ReadonlyArray<Header>) => forward("openai?reports=refusals", headers)
    yield* refusedNext(told(yield* refusedNext(), 429, [["X-Byok-Retry-After", "1"]]))
    assert.strictEqual((yield* refusedNext()).status, 429)
    yield* Effect.sleep("1100 millis")
    for (const _ of [1, 2]) assert.strictEqual(keyIn(yield* refusedNext()), slow)
    yield* refusedNext(told(yield* refusedNext(), 429, [["X-Byok-Retry-After", "30"]]))
    assert.strictEqual((yield* refusedNext()).status, 429)
  })

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

  it.effect("respects models, users, regions and workspaces, and has no shared capacity", function* () {
    const { forward, tenant } = yield* scene(
      { provider: "openai", key: slow, allowed_models: ["a/model"] },
      { provider: "groq", key, allowed_user_ids: ["ünal"] },
      { provider: "azure", key, declared_region: "europe" },
      { provider: "mistral", key, allowed_models: [] }
    )
    assert.strictEqual((yield* forward()).status, 402, "no model")
    for (const [query, model] of [
      ["?model=a/model"],
      ["", "a/model"],
      ["?model=", "a/model"],
      ["?model=a%2Fmodel", "b"]
    ] as const) {
      const named: ReadonlyArray<Header> = model === undefined ? [] : [["X-Byok-Model", model]]
      assert.strictEqual(keyIn(yield* forward(`openai${query}`, named)), slow)
    }
    assert.strictEqual((yield* forward("openai?model=b", [["X-Byok-Model", "a/model"]])).status, 402)
    assert.strictEqual((yield* forward("groq")).status, 402)
    const user = Buffer.from("ünal").toString("latin1")
    assert.strictEqual(keyIn(yield* forward("groq", [["X-Byok-User", user]])), key)
    for (const host of ["europe", "global"]) {
      assert.strictEqual((yield* forward("azure", [["X-Byok-Host", host]])).headers["api-key"], key)
    }
    assert.strictEqual((yield* forward("azure", [["X-Byok-Host", "us"]])).status, 402)
    const none = yield* forward("mistral?model=a")
    assert.include(errorIn(none).message, "model_not_allowed")
    const stranger = yield* TestService.newTenant
    const foreign = yield* forward("openai?model=a/model", [["X-Byok-Workspace", stranger.workspace_id]])
    assert.deepStrictEqual([foreign.status, foreign.body.includes("X-Byok-Workspace")], [400, true])
    const named: ReadonlyArray<Header> = [["X-Byok-Workspace", tenant.workspace_id]]
    assert.strictEqual(keyIn(yield* forward("openai?model=a/model", named)), slow)
  })

  it.effect("without a model, parks keys under a fixed name", function* () {
    const { forward } = yield* scene(slow)
    yield* forward("openai", told(yield* forward(), 429, [["X-Byok-Retry-After", "30"]]))
    assert.strictEqual((yield* forward()).status, 429)
    assert.strictEqual(keyIn(yield* forward("openai?model=a/model")), slow, "another model goes on")
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

  it.effect("shares no path with the socket for gateways or the port, and manages nothing (control)", function* () {
    const { ask } = yield* scene()
    for (const path of [
      "/v1/accounts",
      "/v1/attempts",
      "/v1/reports",
      "/openapi.json",
      "/api/v1/byok",
      "/health/ready",
      "/v1/forward",
      "/"
    ]) {
      for (const method of ["GET", "POST"]) assert.strictEqual((yield* ask(path, [json], method)).status, 404, path)
    }
  })
})
