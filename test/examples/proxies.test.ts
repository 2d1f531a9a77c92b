import { Effect, Exit, Layer, Scope } from "effect"
import type { ServerResponse } from "node:http"
import { join } from "node:path"
import * as ForwardServer from "../../src/forward/ForwardServer.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { createdId } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { leakOf } from "../support/keys/leakSearch.ts"
import { eventually } from "../support/process/eventually.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { readAnthropic, readOpenAI } from "./sdkClients.ts"
import { examples, keyIn, provider, type Seen, shownInReadme, startProxy } from "./Proxies.ts"

const good = "sk-good-0123456789-0123456789-AbCd"
const limited = "sk-limited-9876543210-9876543210"
const rejected = "sk-rejected-5678901234-5678901234"

const words = ["one", "two", "three"]

/** What a provider streams: the words, in the form of its API. */
const eventsOf = ({ url }: Seen): ReadonlyArray<object> => {
  if (!url.startsWith("/v1/messages")) return words.map((content) => ({ choices: [{ index: 0, delta: { content } }] }))
  const usage = { input_tokens: 1, output_tokens: 1 }
  const deltas = words.map((text) => ({ type: "content_block_delta", index: 0, delta: { type: "text_delta", text } }))
  return [
    { type: "message_start", message: { id: "m", type: "message", role: "assistant", content: [], model: "m", usage } },
    { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    ...deltas,
    { type: "message_stop" }
  ]
}

const stream = (response: ServerResponse, seen: Seen) => {
  response.writeHead(200, { "content-type": "text/event-stream" })
  for (const event of eventsOf(seen)) {
    const type = "type" in event ? `event: ${String(event.type)}\n` : ""
    response.write(`${type}data: ${JSON.stringify(event)}\n\n`)
  }
  response.end(seen.url.startsWith("/v1/messages") ? "" : "data: [DONE]\n\n")
}

/** Answers as its keys say; any other key is good. */
const answer = (key: string, response: ServerResponse, seen: Seen) => {
  if (seen.url === "/v1/broken") return response.destroy()
  if (key === rejected) return response.writeHead(401).end("{}")
  if (key === limited) return response.writeHead(429, { "retry-after": "30" }).end("{}")
  return stream(response, seen)
}

/** A customer with keys of both providers, and an example of a proxy between it and them. */
const scene = Effect.fnUntraced(function* (
  example: Parameters<typeof startProxy>[0],
  keys: ReadonlyArray<string | object>,
  options: Parameters<typeof startProxy>[3] & { readonly answer?: Parameters<typeof provider>[0] } = {}
) {
  const tenant = yield* TestService.newTenant
  for (const each of ["openai", "anthropic"]) {
    for (const one of keys) {
      createdId(yield* tenant.create({ provider: each, ...(typeof one === "string" ? { key: one } : one) }))
    }
  }
  const caller = yield* tenant.ordinaryKey
  const socket = join(yield* temporaryDirectory, "forward.sock")
  const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const listening = Layer.build(Layer.fresh(ForwardServer.layer(serverSettings, socket)))
  yield* Effect.provideService(listening, Scope.Scope, scope)
  const upstream = yield* provider(options.answer ?? answer)
  const proxy = yield* startProxy(example, socket, upstream.address, options)
  const send = (path: string, headers: Readonly<Record<string, string>> = {}, body: object = { model: "a/model" }) =>
    Effect.promise(async () => {
      const all = { authorization: `Bearer ${caller}`, ...headers }
      const response = await fetch(`${proxy.url}${path}`, { method: "POST", headers: all, body: JSON.stringify(body) })
      return { status: response.status, headers: response.headers, text: await response.text() }
    })
  return {
    caller,
    proxy,
    send,
    seenKeys: () => upstream.seen().map(keyIn),
    seen: upstream.seen,
    stopByok: Scope.close(scope, Exit.void),
    chat: (headers?: Readonly<Record<string, string>>, body?: object) => send("/v1/chat/completions", headers, body)
  }
})

const clients = { openai: readOpenAI, anthropic: readAnthropic }
const pathOf = { openai: "/v1/chat/completions", anthropic: "/v1/messages" }

layerLive(TestService.layer)("the example of a proxy", (it) => {
  /** Tests each example, unless its program is missing. */
  const each = (
    title: string,
    body: (
      example: (typeof examples)[string],
      name: string
    ) => Effect.Effect<unknown, Effect.Error<ReturnType<typeof scene>>, Effect.Services<ReturnType<typeof scene>>>,
    names = Object.keys(examples)
  ) => {
    for (const [name, example] of Object.entries(examples).filter(([name]) => names.includes(name))) {
      it.effect(`${name} ${title}`, () => body(example, name))
    }
  }

  each("reaches the next key with the SDK of a provider, which reads the stream", (example) =>
    Effect.gen(function* () {
      const { caller, proxy, seen } = yield* scene(example, [rejected, good])
      for (const each of example.providers) {
        assert.deepStrictEqual(yield* Effect.promise(() => clients[each](proxy.url, caller)), words)
        const requests = seen()
        assert.deepStrictEqual(requests.map(keyIn), [rejected, good])
        assert.deepStrictEqual(
          requests.map(({ headers }) => headers["x-stainless-retry-count"]),
          example.chains ? ["0", "0"] : ["0", "1"]
        )
        for (const { body, headers, rawHeaders } of requests) {
          assert.include(body, "Count")
          const other = each === "openai" ? "x-api-key" : "authorization"
          assert.notProperty(headers, other)
          assert.notInclude(JSON.stringify(rawHeaders), caller)
          assert.notMatch(JSON.stringify(rawHeaders), /x-byok/i)
        }
      }
    })
  )

  each("never sends the caller's key to the provider, in whatever header", (example) =>
    Effect.gen(function* () {
      const { caller, seen, send } = yield* scene(example, [good])
      for (const each of example.providers) {
        const both = { authorization: `Bearer ${caller}`, "x-api-key": caller }
        assert.strictEqual((yield* send(pathOf[each], both)).status, 200)
        const [request, ...others] = seen()
        assert.lengthOf(others, 0)
        assert.notInclude(JSON.stringify(request?.rawHeaders), caller)
        assert.strictEqual(keyIn(request as Seen), good)
      }
    })
  )

  it.effect("the locations that the README shows give the key to the provider, and no key without a caller", () =>
    Effect.gen(function* () {
      const { chat, seen } = yield* scene(shownInReadme, [{ key: good, allowed_user_ids: null }])
      assert.strictEqual((yield* chat({ "x-byok-user": "\t" })).status, 200)
      assert.deepStrictEqual(seen().map(keyIn), [good])
      assert.strictEqual((yield* chat({ authorization: "" })).status, 403)
      assert.deepStrictEqual(seen(), [])
    })
  )

  each("answers 429 with Retry-After, 402 without a key and 401 to strangers, as byok does", (example) =>
    Effect.gen(function* () {
      const one = yield* scene(example, [limited])
      for (const seen of [[limited], []]) {
        const { headers, status, text } = yield* one.chat()
        assert.deepStrictEqual([status, one.seenKeys()], [429, seen])
        assert.include(["29", "30"], headers.get("retry-after"))
        assert.include(text, '{"error":{"code":429,"message":"The provider limits the rate of the key"}}')
      }
      const stranger = yield* one.chat({ authorization: "Bearer byok_ak_unknown" })
      assert.deepStrictEqual([stranger.status, stranger.text.includes("Invalid API key")], [401, true])
      const none = yield* scene(example, [])
      const { status, text } = yield* none.chat()
      assert.deepStrictEqual([status, none.seenKeys()], [402, []])
      assert.include(text, "No key of this provider is stored")
    })
  )

  each("answers 502 or 503 while byok is down, and sends no request to the provider", (example) =>
    Effect.gen(function* () {
      const { chat, seenKeys, stopByok } = yield* scene(example, [good])
      assert.strictEqual((yield* chat()).status, 200)
      assert.deepStrictEqual(seenKeys(), [good])
      yield* stopByok
      for (const _ of [1, 2]) assert.include([502, 503], (yield* chat()).status)
      assert.deepStrictEqual(seenKeys(), [])
    })
  )

  each("passes on each chunk of a stream as it is sent", (example) =>
    Effect.gen(function* () {
      let go = () => {}
      let type = ""
      const { caller, proxy } = yield* scene(example, [good], {
        answer: (_key, response) => {
          response.writeHead(200, { "content-type": type }).write("data: 1\n\n")
          // Only the client's first chunk lets the second go.
          go = () => response.end("data: 2\n\n")
        }
      })
      const types = ["text/event-stream", "application/vnd.amazon.eventstream"]
      const cases = example.providers.flatMap((each) => types.map((type) => [each, type] as const))
      for (const [each, one] of cases) {
        type = one
        const headers = { authorization: `Bearer ${caller}` }
        const chunks = yield* Effect.promise(async () => {
          const response = await fetch(`${proxy.url}${pathOf[each]}`, { method: "POST", headers, body: "{}" })
          const texts: Array<string> = []
          for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
            texts.push(Buffer.from(chunk).toString())
            go()
          }
          return texts
        })
        assert.deepStrictEqual(chunks, ["data: 1\n\n", "data: 2\n\n"])
      }
    })
  )

  each("ignores the client's own X-Byok headers", (example) =>
    Effect.gen(function* () {
      const forUser = { key: good, allowed_user_ids: ["root"] }
      const { chat, seenKeys } = yield* scene(example, [forUser])
      const headers = {
        "x-byok-user": "root",
        "x-byok-model": "a/model",
        "x-byok-workspace": "none",
        "x-byok-attempt": "forged",
        "x-byok-status": "401",
        "x-byok-error": "200 fine"
      }
      const { status, text } = yield* chat(headers)
      assert.deepStrictEqual([status, seenKeys()], [402, []])
      assert.include(text, "user_not_allowed")
      const plain = yield* scene(example, [good])
      for (const _ of [1, 2]) assert.strictEqual((yield* plain.chat(headers)).status, 200)
      assert.deepStrictEqual(plain.seenKeys(), [good, good])
    })
  )

  each("carries keys of 4 and of 8 kB", (example) =>
    Effect.gen(function* () {
      for (const length of [4096, 8192]) {
        const long = `sk-${"0123456789".repeat(820)}`.slice(0, length)
        const { chat, seenKeys } = yield* scene(example, [rejected, long])
        // A body that fills buffers: the key must still have room.
        const body = { model: "a/model", text: "x".repeat(100_000) }
        const statuses = [(yield* chat({}, body)).status, (yield* chat({}, body)).status]
        assert.include(statuses, 200, `${length}`)
        assert.strictEqual(seenKeys().at(-1), long)
      }
    })
  )

  each("lets a key that was refused before serve all requests after its cooldown", (example) =>
    Effect.gen(function* () {
      let wait = "1"
      const { chat, seenKeys } = yield* scene(example, [limited], {
        answer: (key, response, seen) => {
          if (wait === "") return answer("", response, seen)
          response.writeHead(429, { "retry-after": wait }).end("{}")
          wait = ""
        }
      })
      assert.strictEqual((yield* chat()).status, 429)
      yield* Effect.sleep("1100 millis")
      assert.strictEqual((yield* chat()).status, 200)
      // Some report success once the client has its answer. Unreported, a trial lasts 30 seconds.
      const served = eventually("the next request is served", chat(), ({ status }) => status === 200)
      yield* Effect.timeoutOrElse(served, {
        duration: "10 seconds",
        orElse: () => Effect.die(new Error("still on trial"))
      })
      assert.strictEqual((yield* chat()).status, 200)
      assert.include(seenKeys(), limited)
    })
  )

  each("logs no nine characters of a key at the default level, and at the level debug does (control)", (example) =>
    Effect.gen(function* () {
      for (const debug of [false, true]) {
        const { caller, chat, proxy, send } = yield* scene(example, [rejected, limited, good], { debug })
        for (const each of example.providers) {
          for (const _ of [1, 2, 3]) yield* send(pathOf[each])
          yield* send(pathOf[each], { authorization: "", "x-api-key": caller })
        }
        yield* chat()
        yield* eventually("requests are logged", Effect.sync(proxy.printed), (text) =>
          text.includes("/v1/chat/completions")
        )
        const leaked = leakOf(proxy.printed(), [rejected, limited, good])
        assert.strictEqual(leaked !== undefined, debug, proxy.printed().slice(-3000))
      }
    })
  )

  each(
    "sends the model of the body to byok, and a line break in it begins no header",
    (example) =>
      Effect.gen(function* () {
        const forModel = { key: good, allowed_models: ["a/model"] }
        const forUser = { key: limited, allowed_user_ids: ["root"] }
        const { chat, seenKeys } = yield* scene(example, [forUser, forModel])
        for (const [model, expected] of [
          ["a/model", 200],
          ["a/other", 402],
          ["a/model HTTP/1.1\r\nX-Byok-User: root\r\nX: ", 400],
          ["a/model&model=a/other", 402],
          [undefined, 402]
        ] as const) {
          const { status } = yield* chat({}, { model })
          assert.deepStrictEqual([status, seenKeys()], [expected, expected === 200 ? [good] : []], model)
        }
      }),
    ["nginx/chain.conf"]
  )

  each(
    "can name a fixed model",
    (example, name) =>
      Effect.gen(function* () {
        const forModel = { key: good, allowed_models: ["a/model"] }
        const changes: Readonly<Record<string, readonly [string, string]>> = {
          "nginx/smallest.conf": ["?deny=403", "?deny=403&model=a%2Fmodel"],
          "caddy/Caddyfile": ["?reports=refusals", "?reports=refusals&model=a/model"],
          "haproxy/haproxy.cfg": ['"/v1/forward/" .. provider', '"/v1/forward/" .. provider .. "?model=a/model"']
        }
        const { chat } = yield* scene(example, [forModel], { changes: [changes[name] ?? ["", ""]] })
        assert.strictEqual((yield* chat()).status, 200)
        assert.strictEqual((yield* (yield* scene(example, [forModel])).chat()).status, 402, "control")
      }),
    Object.keys(examples).filter((name) => name !== "nginx/chain.conf")
  )
})
