import { once } from "node:events"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { assert, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { generateKeyring } from "../src/crypto/Keyring.ts"
import * as Tracing from "../src/Tracing.ts"
import { settingsFor } from "./support/freshDatabase.ts"

const settings = settingsFor("postgres://nobody@localhost/nothing", generateKeyring(new Date(0)))

/** A collector that keeps the paths to which something was sent. */
const collector = Effect.acquireRelease(
  Effect.promise(async () => {
    const paths: Array<string | undefined> = []
    const server = createServer((request, response) => {
      paths.push(request.url)
      request.resume().once("end", () => response.end("{}"))
    }).listen(0, "127.0.0.1")
    await once(server, "listening")
    return { paths, server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
  }),
  ({ server }) => Effect.sync(() => server.close())
)

it.live.each([
  ["", "/v1/traces"],
  ["/", "/v1/traces"],
  ["/otlp", "/otlp/v1/traces"],
  ["/otlp/?tenant=1", "/otlp/v1/traces?tenant=1"]
] as const)("a collector at %j gets spans at %s", ([path, expected]) =>
  Effect.gen(function* () {
    const { paths, url } = yield* collector
    const layer = Tracing.layer({ ...settings, otlpEndpoint: Option.some(new URL(url + path)) })
    yield* Effect.provide(Effect.withSpan(Effect.void, "a test"), layer)
    assert.deepStrictEqual(paths, [expected])
  })
)

it.live("without a collector nothing is sent (control)", () =>
  Effect.gen(function* () {
    const { paths } = yield* collector
    yield* Effect.provide(Effect.withSpan(Effect.void, "a test"), Tracing.layer(settings))
    assert.deepStrictEqual(paths, [])
  })
)
