import { assert, it } from "@effect/vitest"
import { Effect, Option, Redacted, References } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import * as Tracing from "../../src/wiring/Tracing.ts"
import { startCollector } from "../leaks/Collector.ts"
import { settingsFor } from "../support/database/freshDatabase.ts"

const settings = settingsFor("postgres://nobody@localhost/nothing", generateKeyring(new Date(0)))

const sendingTo = (endpoint: Option.Option<URL>) => ({
  ...settings,
  otlp: { ...settings.otlp, traces: Option.map(endpoint, (url) => ({ url, headers: Redacted.make({}) })) }
})

/** Where spans went while one was made. */
const pathsWith = Effect.fnUntraced(function* (endpointAt: (url: string) => Option.Option<URL>) {
  const { received, url } = yield* startCollector
  const layer = Tracing.layer(sendingTo(endpointAt(url)))
  yield* Effect.provide(Effect.withSpan(Effect.void, "a test"), layer)
  return Array.from(received().matchAll(/^POST (\S+) /gm), ([, path]) => path)
})

it.live.each([
  ["", "/"],
  ["/otlp/v1/traces?tenant=1", "/otlp/v1/traces?tenant=1"]
] as const)("a collector at %j gets spans at %s", ([path, expected]) =>
  Effect.gen(function* () {
    assert.deepStrictEqual(yield* pathsWith((url) => Option.some(new URL(url + path))), [expected])
  })
)

it.live("without a collector no spans are created", () =>
  Effect.gen(function* () {
    for (const otlpEndpoint of [Option.none(), Option.some(new URL("http://127.0.0.1:1"))]) {
      const made = Effect.provide(References.TracerEnabled, Tracing.layer(sendingTo(otlpEndpoint)))
      assert.strictEqual(yield* made, Option.isSome(otlpEndpoint))
    }
  })
)
