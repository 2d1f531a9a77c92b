import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Context, Effect, Fiber, Layer, Metric, Option, Redacted, Result } from "effect"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { AuthenticationFailed, Cipher } from "../../src/port/Cipher.ts"
import { KeyringReload } from "../../src/port/KekRegistry.ts"
import { makeCryptoTimer } from "../../src/crypto/CipherLive.ts"
import { limits } from "../../src/crypto/WrapBudget.ts"
import { Database } from "../../src/sql/connection/Database.ts"
import * as Gauges from "../../src/telemetry/Gauges.ts"
import { prometheusText } from "../../src/management/ManagementServer.ts"
import { type BoundCredential, contextOf, type SealedKey } from "../../src/domain/SealedKey.ts"
import { series } from "../deploy/series.ts"
import { plainCredential } from "../support/database/plainCredential.ts"
import { holdOpen, lockTable, untilWaiting } from "../support/database/transactions.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { exchange, send } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { samplesIn, sumIn } from "../support/http/samplesIn.ts"
import { type Changes, TestService } from "../support/http/TestService.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

type Labels = Readonly<Record<string, string>>

class KeyringPath extends Context.Service<KeyringPath, string>()("byok/test/KeyringPath") {}

/** A service with a registry of its own. */
const metered = (changes: Changes = {}) =>
  Layer.provideMerge(
    TestService.layerWith(changes),
    Layer.sync(Metric.MetricRegistry, () => new Map())
  )

const read = (name: string, labels: Labels = {}) =>
  Effect.map(Effect.context(), (context) => sumIn(samplesIn(prometheusText(context)), name, labels))

/** Waits until a sample has risen by exactly this much since `effect` began. */
const raises = Effect.fnUntraced(function* <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  ...expected: ReadonlyArray<readonly [by: number, name: string, labels?: Labels]>
) {
  const before = yield* Effect.forEach(expected, ([, name, labels]) => read(name, labels))
  const result = yield* effect
  for (const [index, [by, name, labels]] of expected.entries()) {
    const from = before[index] ?? 0
    yield* eventually(
      `${name} ${JSON.stringify(labels)} rises by ${by}`,
      Effect.map(read(name, labels), (now = 0) => now === from + by)
    )
  }
  return result
})

const request = (method: string, route: string, status: number): readonly [number, string, Labels] => [
  1,
  "http_server_request_duration_seconds_count",
  { http_request_method: method, http_route: route, http_response_status_code: String(status) }
]

const holds = (name: string, value: number, labels: Labels = {}) =>
  eventually(
    `${name} is ${value}`,
    Effect.map(read(name, labels), (found) => found === value)
  )

const aCredential = CredentialId.make("019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11")

layerLive(metered(), { timeout: "120 seconds" })("the series of a service", (it) => {
  it.effect("metrics count every request by method, route template and status", function* () {
    const { url } = yield* TestService
    const { create, get, management_key } = yield* TestService.tenant
    const collection = "/api/v1/byok"
    const id = createdId(yield* raises(create(minimal), request("POST", collection, 201)))
    yield* raises(create({}), request("POST", collection, 400))
    yield* raises(get(id), request("GET", `${collection}/:id`, 200))
    yield* raises(get(management_key), request("GET", `${collection}/:id`, 404))
    yield* raises(send(url, { path: `/${id}` }), request("GET", "unmatched", 404))
    yield* raises(send(url, { path: collection }), request("GET", collection, 401))
    yield* raises(send(url, { method: "BIND", path: collection }), request("_OTHER", "unmatched", 405))
    yield* raises(
      exchange(url, `GET ${collection} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n`),
      request("GET", collection, 400)
    )
    const expecting = "Expect: a miracle\r\nContent-Length: 0\r\n\r\n"
    yield* raises(
      exchange(url, `POST ${collection} HTTP/1.1\r\nHost: a\r\n${expecting}`),
      request("POST", collection, 417)
    )
  })

  it.effect.each([
    ["that is malformed", "nonsense\r\n\r\n", request("_OTHER", "unmatched", 400)],
    ["with a head that is too large", `GET /${"a".repeat(17_000)}`, request("_OTHER", "unmatched", 431)],
    ["that asks for a tunnel", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", request("CONNECT", "unmatched", 405)]
  ] as const)("metrics count a request refused before it is routed: one %s", function* ([, bytes, counted]) {
    const { url } = yield* TestService
    yield* raises(exchange(url, bytes), counted)
  })

  it.effect("metrics show requests in progress, and count a client that disconnects as 499", function* () {
    const { sql, url } = yield* TestService
    const { management_key } = yield* TestService.tenant
    yield* raises(
      Effect.scoped(
        Effect.gen(function* () {
          const release = yield* lockTable(sql, "api_keys")
          yield* Effect.scoped(
            Effect.gen(function* () {
              const { write } = yield* open(url)
              yield* write(`GET /api/v1/byok HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${management_key}\r\n\r\n`)
              yield* untilWaiting(sql, 1)
              yield* holds("http_server_active_requests", 1)
            })
          )
          yield* holds("http_server_active_requests", 0)
          yield* release
        })
      ),
      request("GET", "/api/v1/byok", 499)
    )
  })

  it.effect("metrics record how long SQL statements take, by operation and kind of failure", function* () {
    const { sql } = yield* TestService
    const { create } = yield* TestService.tenant
    const inserted = (labels: Labels = {}) =>
      [1, "db_client_operation_duration_seconds_count", { db_operation_name: "credentials.insert", ...labels }] as const
    yield* raises(create(minimal), inserted())
    const failed = inserted({ error_type: "StatementTimeoutError" })
    yield* raises(Effect.scoped(Effect.andThen(lockTable(sql, "credentials"), create(minimal))), failed)
  })

  it.effect("metrics show queue depth, queue wait and how many requests shared a statement", function* () {
    const { sql } = yield* TestService
    const { create, get } = yield* TestService.tenant
    const id = createdId(yield* create(minimal))
    const size = { db_operation_name: "credentials.find" }
    const gets = Effect.gen(function* () {
      const release = yield* lockTable(sql, "credentials")
      const asked = yield* Effect.forkChild(
        Effect.forEach(Array.from({ length: 12 }), () => get(id), { concurrency: "unbounded" })
      )
      yield* holds("byok_db_queue_depth", 12, { lane: "reads" })
      yield* release
      return yield* Fiber.join(asked)
    })
    const before = (yield* read("byok_db_batch_size_count", size)) ?? 0
    yield* raises(
      gets,
      [12, "byok_db_batch_size_sum", size],
      [24, "byok_db_queue_wait_duration_seconds_count", { lane: "reads" }]
    )
    const statements = ((yield* read("byok_db_batch_size_count", size)) ?? 0) - before
    assert.isBelow(statements, 12)
    yield* holds("byok_db_queue_depth", 0, { lane: "reads" })
  })

  it.effect("metrics record how long sealing and opening keys take, and failures by reason", function* () {
    const { read: readKey, seal, verify } = yield* Cipher
    const { account_id, create, workspace_id } = yield* TestService.tenant
    const timed = (operation: string, error_type?: string) =>
      [
        1,
        "byok_crypto_operation_duration_seconds_count",
        { operation, ...(error_type === undefined ? {} : { error_type }) }
      ] as const
    yield* raises(create(minimal), timed("seal"))
    const context = { ...plainCredential(workspace_id, aCredential), account_id }
    const sealed = yield* raises(seal(Redacted.make("a key"), contextOf(context)), timed("seal"))
    const open = (one: SealedKey, bound: BoundCredential) => Effect.sync(() => readKey(one, contextOf(bound), String))
    yield* raises(open(sealed, context), timed("unwrap"))
    yield* raises(
      Effect.sync(() => verify(sealed, contextOf(context))),
      timed("unwrap")
    )
    const other = { ...context, disabled: !context.disabled }
    yield* raises(open(sealed, other), timed("unwrap", "AuthenticationFailed"))
    const unknown = { ...sealed, kek_id: "unknown" }
    const count = "byok_crypto_operation_duration_seconds_count"
    assert.strictEqual(
      yield* read(count, { operation: "unwrap", error_type: "UnknownKeyId" }),
      0,
      "it exists before the first failure"
    )
    yield* raises(open(unknown, context), timed("unwrap", "UnknownKeyId"))
  })

  it.effect("metrics record how long rewraps take, and failures by reason", function* () {
    const count = "byok_crypto_operation_duration_seconds_count"
    const timing = (yield* makeCryptoTimer)("rewrap")
    const timed = (result: Result.Result<void, AuthenticationFailed>) => Effect.sync(() => timing(() => result))
    yield* raises(timed(Result.void), [1, count, { operation: "rewrap" }])
    const failing = timed(Result.fail(new AuthenticationFailed()))
    yield* raises(failing, [1, count, { operation: "rewrap", error_type: "AuthenticationFailed" }])
  })

  it.effect("metrics have no labels but those declared for their family", function* () {
    const { create } = yield* TestService.tenant
    yield* create(minimal)
    const text = prometheusText(yield* Effect.context())
    assert.include(text, "http_route=")
    const strange = Array.from(
      text.matchAll(/^(\w+?)(?:_bucket|_sum|_count)?\{(.*)\}/gm),
      ([, name = "", labels = ""]) => {
        const known = series.get(name)
        const names = Array.from(labels.matchAll(/(\w+)="/g), ([, label = ""]) => label)
        const own = [...(known?.labels ?? []), ...(known?.isHistogram === true ? ["le"] : [])]
        const others = names.filter((label) => !own.includes(label))
        return others.map((label) => `${name}: ${label}`)
      }
    ).flat()
    assert.deepStrictEqual(strange, [])
  })
})

layerLive(metered(), { timeout: "120 seconds" })("series read in the background", (it) => {
  it.effect("metrics show key wraps, unsealed audit entries and readiness from the database", function* () {
    const { sql } = yield* TestService
    const { create } = yield* TestService.tenant
    assert.isUndefined(yield* read("byok_ready"))
    yield* Layer.build(Gauges.storeLayer({ wrapsLimit: limits.refuse, primary: () => undefined }, "100 millis"))
    yield* holds("byok_kek_wraps_limit", 2 ** 32)
    yield* holds("byok_ready", 1)
    yield* holds("byok_audit_unsealed_entries", 0)
    yield* create(minimal)
    const [key] = yield* sql<{ id: string }>`SELECT id FROM keks`
    const kek = { kek_id: key?.id ?? "" }
    yield* holds("byok_kek_wraps", 4096, kek)

    yield* eventually(
      "all entries are sealed",
      Effect.map(
        sql`SELECT 1 FROM audit_entries HAVING max(seq) = (SELECT max(last_seq) FROM audit_checkpoints)`,
        (rows) => rows.length > 0
      )
    )
    const release = yield* holdOpen(sql, "INSERT INTO audit_entries (events) VALUES ('[]')")
    yield* create(minimal)
    yield* create(minimal)
    yield* holds("byok_audit_unsealed_entries", 2)
    yield* release
    yield* holds("byok_audit_unsealed_entries", 0)

    yield* sql`UPDATE keks SET retired_at = now()`
    yield* holds("byok_ready", 0)
    yield* eventually(
      "a retired key has no series",
      Effect.map(read("byok_kek_wraps"), (found) => found === undefined)
    )
    yield* sql`UPDATE keks SET retired_at = NULL`
    yield* holds("byok_kek_wraps", 4096, kek)
    yield* holds("byok_ready", 1)
  })

  it.effect("metrics show the primary key's age, or nothing if the database does not know the key", function* () {
    const { sql } = yield* TestService
    const name = "byok_kek_primary_age_seconds"
    const [registered] = yield* sql<{ id: string; recent: boolean }>`
        SELECT id, registered_at BETWEEN now() - interval '5 minutes' AND now() AS recent FROM keks`
    assert.isTrue(registered?.recent)
    let primary = registered?.id
    yield* Layer.build(Gauges.storeLayer({ wrapsLimit: 1, primary: () => primary }, "100 millis"))
    const isDaysOld = (days: number) =>
      eventually(
        `the key is ${days} days old`,
        Effect.map(read(name), (age = -1) => age >= days * 86_400 && age < days * 86_400 + 600)
      )
    const isAbsent = eventually(
      "there is no age",
      Effect.map(read(name), (age) => age === undefined)
    )
    yield* isDaysOld(0)
    yield* sql`UPDATE keks SET registered_at = now() - interval '400 days'`
    yield* isDaysOld(400)
    yield* sql`
        INSERT INTO keks (id, check_value, registered_at)
        VALUES ('next', decode(repeat('01', 16), 'hex'), now() - interval '2 days')`
    primary = "next"
    yield* isDaysOld(2)
    yield* sql`UPDATE keks SET registered_at = now() + interval '10 days' WHERE id = 'next'`
    yield* holds(name, 0)
    primary = "nowhere"
    yield* isAbsent
    yield* sql`DELETE FROM keks WHERE id = 'next'`
  })

  it.effect("metrics show CPU, memory, version and event loop delay of the process", function* () {
    yield* Layer.build(Gauges.processLayer("1.2.3", "1 second"))
    assert.strictEqual(yield* read("byok_build_info", { version: "1.2.3" }), 1)
    assert.isAbove((yield* read("process_memory_usage_bytes")) ?? 0, 2 ** 20)
    const user = { cpu_mode: "user" }
    const before = (yield* read("process_cpu_time_seconds_total", user)) ?? Number.NaN
    const holdUp = Effect.sync(() => {
      for (const began = performance.now(); performance.now() - began < 300;);
    })
    yield* holdUp
    assert.isAbove((yield* read("process_cpu_time_seconds_total", user)) ?? 0, before)
    yield* eventually(
      "the delay is shown",
      Effect.andThen(
        holdUp,
        Effect.map(read("nodejs_eventloop_delay_max_seconds"), (found = 0) => found > 0.2)
      )
    )
    const [p50 = -1, p99 = -1, max = -1] = yield* Effect.forEach(["p50", "p99", "max"], (name) =>
      read(`nodejs_eventloop_delay_${name}_seconds`)
    )
    assert.isTrue(0 <= p50 && p50 <= p99 && p99 <= max)
  })
})

layerLive(metered({ settings: (settings) => ({ ...settings, database: { ...settings.database, queue: 1 } }) }))(
  "a queue that is full",
  (it) => {
    it.effect("metrics count statements refused by a full queue, by lane (reads or writes)", function* () {
      const { sql } = yield* TestService
      const { reads } = yield* Database
      // What the service itself asks when it starts reads no workspaces.
      const rows = reads.sql`SELECT 1 FROM workspaces`
      const ask = reads.ask(rows, "tests.ask")
      const batch = reads.batch({ operation: "tests.batch", one: () => rows, many: () => Effect.succeed([]) })
      for (const refused of [ask, batch(undefined)]) {
        const release = yield* lockTable(sql, "workspaces")
        const waiting = yield* Effect.forkChild(refused)
        yield* untilWaiting(sql, 1)
        yield* raises(
          Effect.flip(refused),
          [1, "byok_db_refusals_total", { lane: "reads" }],
          [0, "byok_db_refusals_total", { lane: "writes" }]
        )
        yield* release
        assert.isEmpty(yield* Fiber.join(waiting))
      }
    })
  }
)

layerLive(
  Layer.unwrap(
    Effect.map(temporaryDirectory, (directory) => {
      const file = join(directory, "keyring")
      writeFileSync(file, ringOf("old"), { mode: 0o600 })
      const keyring = { keyring: Option.none(), keyringFile: Option.some(file) }
      return Layer.merge(
        metered({ settings: (settings) => ({ ...settings, ...keyring }) }),
        Layer.succeed(KeyringPath, file)
      )
    })
  )
)("reloads of the keyring", (it) => {
  it.effect("metrics count reloads of the keyring by their result", function* () {
    const file = yield* KeyringPath
    const { reload } = yield* KeyringReload
    const counted = (result: string) => [1, "byok_keyring_reloads_total", { result }] as const
    writeFileSync(file, ringOf("new", "old"))
    yield* raises(reload, counted("ok"))
    writeFileSync(file, "")
    yield* raises(Effect.flip(reload), counted("failed"))
  })
})
