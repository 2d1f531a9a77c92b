import { Effect } from "effect"
import { decodeJwt } from "jose"
import { bearer, type Header, json, send } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { accessKey, serviceAccount } from "../support/keys/cloudKeys.ts"
import { assert, layerLive } from "../support/it.ts"
import { key, bad, slow, scene, keyIn, told, errorIn } from "./proxyScene.ts"

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
