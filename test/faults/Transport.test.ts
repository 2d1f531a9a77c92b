import { Context, Duration, Effect, Exit, Fiber, Layer, Redacted, Scope } from "effect"
import { HttpServer } from "effect/http"
import * as Byok from "../../src/wiring/Byok.ts"
import * as Server from "../../src/http/Server.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { applicationName, type DatabaseSettings, makeClient } from "../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { eventually } from "../support/process/eventually.ts"
import { databaseSettings, migratedDatabase, settingsFor } from "../support/database/freshDatabase.ts"
import { create, get } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { Recording } from "../support/process/Recording.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type FaultyProxy, faultyProxy } from "./FaultyProxy.ts"
import { assert, describe, it } from "../support/it.ts"
import { neverDraining } from "../support/service/defaultSettings.ts"

const shortDeadlines: DatabaseSettings = {
  ...databaseSettings,
  poolSize: 3,
  connectTimeout: Duration.seconds(1),
  statementTimeout: Duration.seconds(1),
  deadline: Duration.millis(1500)
}

/** The service on a database that it reaches through a faulty network, with one credential in it. */
const open = (times: DatabaseSettings = shortDeadlines) =>
  Effect.gen(function* () {
    const databaseUrl = yield* migratedDatabase
    const proxy = yield* faultyProxy(databaseUrl)
    const settings = { ...settingsFor(proxy.url), database: times }
    const scope = yield* Scope.make()
    const service = Server.layer(settings).pipe(
      Layer.provideMerge(Byok.layerWith(settings)),
      Layer.provide(neverDraining),
      Layer.provideMerge(Recording.layer)
    )
    const context = yield* Layer.buildWithScope(service, scope)
    const url = HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address)
    const made = yield* Context.get(context, Accounts).createAccount("a test account")
    const key = Redacted.value(made.management_key)
    const first = yield* create(url, key, minimal)
    const id = createdId(first)

    const observer = yield* makeClient(parseDatabaseUrl(Redacted.make(databaseUrl)), databaseSettings)
    const connections = Effect.map(
      observer<{ n: number }>`
        SELECT count(*)::int AS n FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = ${applicationName} AND pid <> pg_backend_pid()`,
      (rows) => rows[0]?.n ?? -1
    )
    const later = Duration.sum(times.deadline, Duration.millis(2500))
    const burst = Effect.all(
      Array.from({ length: 40 }, (_, n) => (n % 2 === 0 ? get(url, key, id) : create(url, key, minimal))),
      { concurrency: "unbounded" }
    ).pipe(Effect.timeoutOrElse({ duration: later, orElse: () => Effect.die(new Error("a request is not answered")) }))
    return { burst, close: Scope.close(scope, Exit.void), connections, first, key, proxy, url }
  })

const isRight = (first: Answer) => (answer: Answer) =>
  answer.status === 201 || (answer.status === 200 && answer.body === first.body)

const faults: ReadonlyArray<readonly [string, (proxy: FaultyProxy) => void, boolean]> = [
  ["cuts every connection", ({ reset }) => reset(), false],
  ["drops all data", ({ swallow }) => swallow(), true]
]

describe("a network to the database", () => {
  it.live.each(faults)(
    "that %s: every request is answered, and the service recovers and leaks no connection (R4, D11)",
    function* (row) {
      const [, fail, silent] = row
      const { burst, close, connections, first, proxy } = yield* open()
      const right = isRight(first)
      yield* eventually(
        "every request succeeds",
        Effect.map(burst, (answered) => answered.every(right))
      )
      assert.isAbove(yield* connections, 0)

      const during = yield* Effect.forkChild(burst)
      fail(proxy)
      const answers = [...(yield* Fiber.join(during)), ...(yield* burst)]
      for (const answer of answers) {
        if (!right(answer)) assertRefused(answer, answer.status === 503 ? "ServiceUnavailable" : "InternalError")
      }
      if (silent) {
        assert.isAbove(answers.filter(({ status }) => status === 500).length, 0)
        assert.isAbove(proxy.swallowed(), 0)
      }

      proxy.forward()
      yield* eventually(
        "every request succeeds again",
        Effect.map(burst, (answered) => answered.every(right))
      )
      assert.isAtMost(yield* connections, 2 * shortDeadlines.poolSize + 1, "both pools, and the one of the audit log")
      yield* close
      yield* eventually(
        "no connection is left",
        Effect.map(connections, (n) => n === 0)
      )
    }
  )

  it.live("that answers each statement 600 ms late: a create fails at its deadline (F10, D11)", function* () {
    const { key, proxy, url } = yield* open()
    proxy.delay(600)
    const began = performance.now()
    const answer = yield* create(url, key, minimal, [["Idempotency-Key", "one"]])
    // No statement is as late as its own deadline, so that only the request's can refuse it.
    assert.isBelow(600, Duration.toMillis(shortDeadlines.statementTimeout))
    assertRefused(answer, "InternalError")
    assert.isAtLeast(performance.now() - began, Duration.toMillis(shortDeadlines.deadline) - 100)
  })
})
