import { assert, it } from "@effect/vitest"
import { Context, Effect, Exit, Option, Redacted, Scope } from "effect"
import { FetchHttpClient } from "effect/http"
import { makeSpanQueue } from "../../src/tracing/makeSpanQueue.ts"
import { RecordedSpan } from "../../src/tracing/RecordedSpan.ts"
import { SpanCollector } from "../support/http/SpanCollector.ts"
import { eventually } from "../support/process/eventually.ts"
import { logLines } from "../support/process/logLines.ts"

const options = (name: string) => ({
  name,
  parent: Option.none(),
  annotations: Context.empty(),
  links: [],
  startTime: 10n ** 18n,
  kind: "internal" as const,
  root: true,
  sampled: true
})

const spanNamed = (name: string) => {
  const span = new RecordedSpan(options(name), "a".repeat(32), true, () => {})
  span.end(10n ** 18n + 1n, Exit.void)
  return span
}

const queueTo = (url: URL) =>
  makeSpanQueue({ url, headers: {}, resource: {} }).pipe(Effect.provide(FetchHttpClient.layer))

it.live("spans of any name and attribute arrive as they were, and all of them before the queue is closed", () =>
  Effect.gen(function* () {
    const { spans, url } = yield* SpanCollector.make
    const odd = `"\\ ü\u{1f511}\ud800\u0000\u007f\n${"x".repeat(10)}\u2028`
    yield* Effect.scoped(
      Effect.gen(function* () {
        const add = yield* queueTo(url)
        for (let index = 0; index < 2000; index += 1) add(spanNamed(`${odd}${index}`))
        const described = new RecordedSpan(options("described"), "b".repeat(32), true, add)
        for (const [key, value] of [
          ["text", odd],
          ["count", 3],
          ["flag", true],
          ["list", [odd]]
        ] as const)
          described.attribute(key, value)
        described.end(10n ** 18n, Exit.die(new Error("canary")))
        described.attribute("late", "canary")
      })
    )
    assert.deepStrictEqual(
      spans.slice(0, 2000).map(({ name }) => name),
      Array.from({ length: 2000 }, (_, index) => `${odd}${index}`)
    )
    assert.deepStrictEqual(spans[2000]?.attributes, { text: odd, count: 3, flag: true, list: [odd] })
    assert.deepStrictEqual(spans[2000]?.status, { code: 2 })
    assert.lengthOf(spans, 2001)
  })
)

it.live("a span that is larger than a batch is dropped, and its neighbours arrive", () =>
  Effect.gen(function* () {
    const { spans, url } = yield* SpanCollector.make
    const lines: Array<string> = []
    yield* Effect.scoped(
      Effect.gen(function* () {
        const add = yield* Effect.provide(queueTo(url), logLines(lines))
        for (const name of ["before", "x".repeat(300_000), "after"]) add(spanNamed(name))
      })
    )
    assert.deepStrictEqual(
      spans.map(({ name }) => name),
      ["before", "after"]
    )
    assert.deepStrictEqual(lines, ["Warn The collector of traces does not keep up or refuses: 1 spans were dropped"])
  })
)

it.live("a collector that does not answer costs a bounded number of spans, and is reported with their number", () =>
  Effect.gen(function* () {
    const { answer, headers, spans, url } = yield* SpanCollector.make
    const lines: Array<string> = []
    const scope = yield* Scope.make()
    answer(0)
    const add = yield* Effect.provide(Scope.provide(queueTo(url), scope), logLines(lines))
    const big = spanNamed("x".repeat(140_000))
    // Each is a batch of its own.
    add(big)
    add(big)
    yield* eventually(
      "the first batch is on its way",
      Effect.sync(() => headers.length === 1)
    )
    for (let index = 0; index < 39; index += 1) add(big)
    assert.lengthOf(headers, 1)
    answer(200)
    yield* Scope.close(scope, Exit.void)
    assert.lengthOf(spans, 33)
    assert.deepStrictEqual(lines, ["Warn The collector of traces does not keep up or refuses: 7 spans were dropped"])
  })
)

it.live("headers and the path of the collector are in no line of the log", () =>
  Effect.gen(function* () {
    const { answer, headers, url } = yield* SpanCollector.make
    const lines: Array<string> = []
    answer(401)
    const secret = Redacted.make("canary")
    const make = makeSpanQueue({
      url: new URL("?token=canary", url),
      headers: { authorization: `Bearer ${Redacted.value(secret)}` },
      resource: {}
    }).pipe(Effect.provide([FetchHttpClient.layer, logLines(lines)]))
    yield* Effect.scoped(
      Effect.gen(function* () {
        const add = yield* make
        add(spanNamed("refused"))
        yield* eventually(
          "the refusal is reported",
          Effect.sync(() => lines.length > 0)
        )
      })
    )
    assert.strictEqual(headers[0]?.["authorization"], "Bearer canary")
    assert.deepStrictEqual(lines, ["Warn The collector of traces does not keep up or refuses: 1 spans were dropped"])
  })
)
