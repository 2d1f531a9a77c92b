import { spawnSync } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Context, Effect, Layer } from "effect"
import { series as every } from "../deploy/series.ts"
import { OnDatabase } from "../support/process/firstStart.ts"
import { minimal } from "../support/http/Bodies.ts"
import { createOver } from "../support/http/callByok.ts"
import { send } from "../support/http/HttpProbe.ts"
import { open as openConnection } from "../support/http/RawConnection.ts"
import { samplesIn, sumIn } from "../support/http/samplesIn.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"
import { managementUrl, startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const promtool = "promtool"
const hasPromtool = spawnSync(promtool, ["--version"]).status === 0
if (!hasPromtool) console.warn("promtool is not installed: nothing checks the text of /metrics but this program")

/** A service with a management port, and the file of its keyring. */
const started = Effect.fnUntraced(function* (variables: Record<string, string> = {}) {
  const { key, settings } = yield* OnDatabase
  const { BYOK_KEYRING, DATABASE_URL } = settings
  const keyring = join(yield* temporaryDirectory, "keyring")
  writeFileSync(keyring, BYOK_KEYRING, { mode: 0o600 })
  const given = { BYOK_KEYRING_FILE: keyring, BYOK_MANAGEMENT_PORT: "0", DATABASE_URL, LOG_LEVEL: "info" }
  const service = yield* startService({ ...given, ...variables })
  return { key, keyring, url: service.url, management: yield* managementUrl(service) }
})

/** One such service, for tests that need no other settings. */
class Management extends Context.Service<Management, Effect.Success<ReturnType<typeof started>>>()(
  "byok/test/Management"
) {
  static readonly layer = Layer.provideMerge(Layer.effect(this, started()), OnDatabase.layer)
}

const metrics = (management: string) =>
  Effect.map(send(management, { path: "/metrics" }), ({ body, headers, status }) => {
    assert.deepStrictEqual([status, headers["content-type"]], [200, "text/plain; version=0.0.4; charset=utf-8"])
    return body
  })

const sum = (management: string, name: string, labels: Record<string, string> = {}) =>
  Effect.map(metrics(management), (text) => sumIn(samplesIn(text), name, labels))

const json = ({ body }: { readonly body: string }) => JSON.parse(body) as unknown

const reload = (management: string) => send(management, { method: "POST", path: "/keyring/reload" })

layerLive(Management.layer, { timeout: "120 seconds" })("the management port", (it) => {
  it.effect(
    "GET /metrics shows every documented series but those of certificate, webhook, reported outcomes and proxies",
    function* () {
      const series = Array.from(every).filter(
        ([name]) => !/^byok_(certificate_|webhook_|router_outcomes|forwards)/.test(name)
      )
      const { key, management, url } = yield* Management
      const { body, status } = yield* createOver(url, key, minimal)
      assert.strictEqual(status, 201, body)
      yield* eventually("the database was read", metrics(management), (text) =>
        ["byok_ready", "byok_kek_primary_age_seconds", "byok_audit_unsealed_entries"].every((name) =>
          text.includes(`# TYPE ${name} `)
        )
      )
      const text = yield* metrics(management)
      const types = Array.from(text.matchAll(/^# TYPE (\w+) (\w+)$/gm), ([, name, type]) => `${name} ${type}`)
      assert.sameMembers(
        types,
        series.map(([name, { type }]) => `${name} ${type}`)
      )
      const help = Array.from(text.matchAll(/^# HELP (\w+) (.+)$/gm), ([, name, words]) => `${name} ${words}`)
      assert.sameMembers(
        help,
        series.map(([name, { description }]) => `${name} ${description}`)
      )
    }
  )

  it.effect.skipIf(!hasPromtool)("GET /metrics passes promtool check metrics", function* () {
    const { key, management, url } = yield* Management
    yield* createOver(url, key, minimal)
    const check = (input: string) => spawnSync(promtool, ["check", "metrics"], { input, encoding: "utf8" })
    const { status, stderr, stdout } = check(yield* metrics(management))
    assert.deepStrictEqual({ status, stderr, stdout }, { status: 0, stderr: "", stdout: "" })
    assert.notStrictEqual(check("# TYPE requests counter\nrequests 1\n").status, 0, "control")
  })

  it.effect("the management port answers 404 and 405 in JSON; the public port has none of its paths", function* () {
    const { management, url } = yield* Management
    const live = yield* send(management, { path: "/health/live" })
    assert.deepStrictEqual([live.status, json(live)], [200, { status: "live" }])
    const unknown = yield* send(management, { path: "/api/v1/byok" })
    assert.deepStrictEqual(
      [unknown.status, json(unknown)],
      [404, { error: { code: 404, message: "Resource not found" } }]
    )
    for (const [method, path, allow] of [
      ["POST", "/metrics", "GET, HEAD"],
      ["GET", "/keyring/reload", "POST"],
      ["DELETE", "/health/ready", "GET, HEAD"]
    ] as const) {
      const { body, headers, status } = yield* send(management, { method, path })
      assert.deepStrictEqual([status, headers["allow"]], [405, allow])
      assert.deepStrictEqual(JSON.parse(body), { error: { code: 405, message: "Method not allowed" } })
      assert.strictEqual(headers["cache-control"], "no-store")
      assert.match(headers["x-request-id"] ?? "", /./)
    }
    assert.strictEqual((yield* send(management, { method: "HEAD", path: "/metrics" })).status, 200)
    for (const path of ["/metrics", "/keyring/reload"]) {
      assert.strictEqual((yield* send(url, { path })).status, 404)
      assert.strictEqual((yield* send(url, { method: "POST", path })).status, 404)
    }
  })

  it.effect("the management port refuses requests with an Origin header or a foreign Host", function* () {
    const { management } = yield* Management
    for (const header of [
      ["Origin", "https://attacker.example"],
      ["Origin", "null"],
      ["Host", "attacker.example:9464"]
    ] as const) {
      for (const request of [{ path: "/metrics" }, { path: "/keyring/reload", method: "POST" }]) {
        const { body, status } = yield* send(management, { ...request, headers: [header] })
        assert.deepStrictEqual([status, json({ body })], [403, { error: { code: 403, message: "Not for browsers" } }])
      }
    }
    for (const host of ["127.0.0.1:9464", "localhost", "[::1]:9464"]) {
      const { status } = yield* send(management, { path: "/metrics", headers: [["Host", host]] })
      assert.strictEqual(status, 200, host)
    }
  })

  it.effect("a target in absolute form counts as the Host of a request to the management port", function* () {
    const { management } = yield* Management
    for (const [path, host, expected] of [
      ["http://attacker.example/metrics", "localhost", 403],
      ["http://localhost:9464/metrics", "attacker.example", 200],
      ["http://localhost:9464/unknown", "localhost", 404]
    ] as const) {
      const { status } = yield* send(management, { path, headers: [["Host", host]] })
      assert.strictEqual(status, expected, `${path} with Host ${host}`)
    }
  })

  it.effect(
    "the management port answers probes while the public port drops and counts excess connections",
    function* () {
      const { management, url } = yield* started({ MAX_CONNECTIONS: "1" })
      yield* openConnection(url)
      yield* eventually("it is open", sum(management, "byok_http_connections"), (open) => open === 1)
      assert.strictEqual((yield* Effect.exit(send(url, { path: "/health/live" })))._tag, "Failure", "control")
      for (const path of ["/health/live", "/health/ready"]) {
        assert.strictEqual((yield* send(management, { path })).status, 200)
      }
      assert.strictEqual(yield* sum(management, "byok_http_connections_limit"), 1)
      assert.isAtLeast((yield* sum(management, "byok_http_connections_dropped_total")) ?? 0, 1)
    }
  )

  it.effect("the management port says why the service is not ready; the public port does not", function* () {
    const { sql } = yield* OnDatabase
    const { management, url } = yield* Management
    const ready = yield* send(management, { path: "/health/ready" })
    assert.deepStrictEqual([ready.status, json(ready)], [200, { status: "ready", warnings: [] }])
    const [kek] = yield* sql<{ id: string }>`UPDATE keks SET retired_at = now() RETURNING id`
    const problem = `key ${kek?.id} is retired but still first in the keyring: nothing can be sealed`
    const error = { code: 503, message: "Service temporarily unavailable" }
    yield* eventually("it is known", send(management, { path: "/health/ready" }), ({ status }) => status === 503)
    assert.deepStrictEqual(json(yield* send(management, { path: "/health/ready" })), {
      error: { ...error, metadata: { problems: [problem], warnings: [] } }
    })
    // Readiness answers anybody, so its answer is cached for a second.
    const askPublic = send(url, { path: "/health/ready" })
    yield* eventually("the public port knows", askPublic, ({ status }) => status === 503)
    const inPublic = yield* askPublic
    assert.deepStrictEqual([inPublic.status, json(inPublic)], [503, { error }])
    yield* sql`UPDATE keks SET retired_at = NULL`
  })

  it.effect("POST /keyring/reload names the keys in use, or the reason of a failure with 409", function* () {
    const { keyring, management } = yield* Management
    const before = readFileSync(keyring, "utf8")
    const [old = ""] = before.split(":")
    writeFileSync(keyring, `${ringOf("next")}\n${before}`)
    const done = yield* reload(management)
    assert.deepStrictEqual([done.status, json(done)], [200, { kek_ids: ["next", old] }])
    writeFileSync(keyring, "nonsense")
    const { body, status } = yield* reload(management)
    const reason =
      "BYOK_KEYRING_FILE: key 1: expected id:base64 of 32 bytes, with an id of 1 to 64 characters of A-Z a-z 0-9 . _ -; found 8 characters in another form"
    assert.strictEqual(status, 409)
    assert.deepStrictEqual(JSON.parse(body), {
      error: { code: 409, message: "Keyring not reloaded", metadata: { reason } }
    })
    assert.strictEqual(yield* sum(management, "byok_keyring_reloads_total", { result: "ok" }), 1)
    assert.strictEqual(yield* sum(management, "byok_keyring_reloads_total", { result: "failed" }), 1)
    writeFileSync(keyring, before)
  })
})
