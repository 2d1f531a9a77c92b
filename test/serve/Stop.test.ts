import { Effect, Exit, Fiber, Option } from "effect"
import { assert, layerLive } from "../support/it.ts"
import { minimal, statusesOf } from "../support/http/Bodies.ts"
import { createOver, getOver, idIn } from "../support/http/callByok.ts"
import { creation } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { embeddedClient, StartedBefore } from "../support/process/firstStart.ts"
import { eventually } from "../support/process/eventually.ts"
import { isRunning, isShutDown, postmasterOf, startService } from "../support/process/ServiceProcess.ts"
import { lockTable, untilWaiting } from "../support/database/transactions.ts"

const refuses = (url: string) => Effect.map(Effect.exit(Effect.scoped(open(url))), Exit.isFailure)

const body = JSON.stringify(minimal)

const beginning = (key: string) =>
  Buffer.concat([creation(key, undefined, [["Content-Length", String(body.length)]]), Buffer.from(body.slice(0, 9))])

layerLive(StartedBefore.layer)("a service that is asked to stop", (it) => {
  it.effect.each(["SIGTERM", "SIGINT"] as const)(
    "on %s, a service answers requests in flight, refuses new ones, stops its database and exits with 0 (R2)",
    function* (signal) {
      const { key, settings } = yield* StartedBefore
      const timeouts = {
        DATABASE_STATEMENT_TIMEOUT: "20 seconds",
        DATABASE_DEADLINE: "25 seconds"
      }
      const { ended, stderr, url, ...service } = yield* startService({ ...settings, ...timeouts })
      const postmaster = postmasterOf(settings.BYOK_DATA_DIR)
      const create = createOver(url, key, minimal)
      const earlier = yield* create

      const sql = yield* embeddedClient(settings)
      const unlock = yield* lockTable(sql, "credentials")
      const creating = yield* Effect.forkChild(Effect.all([create, create, create], { concurrency: "unbounded" }))
      const reading = yield* Effect.forkChild(getOver(url, key, idIn(earlier)))
      yield* untilWaiting(sql, 4)

      yield* service.signal(signal)
      yield* eventually("new connections are refused", refuses(url))
      assert.isTrue(isRunning(service.pid))
      yield* unlock
      const created = yield* Fiber.join(creating)
      assert.deepStrictEqual(statusesOf(created), [201, 201, 201])
      assert.strictEqual(new Set(created.map(idIn)).size, 3)
      assert.deepStrictEqual(yield* Fiber.join(reading), { status: 200, body: earlier.body })

      assert.strictEqual(yield* ended, 0)
      assert.strictEqual(stderr(), "")
      assert.isTrue(isShutDown(settings.BYOK_DATA_DIR))
      yield* eventually("the postmaster has ended", () => !isRunning(postmaster))
    }
  )

  it.effect.each<readonly [name: string, sent: (key: string) => string | Buffer, rest: string, answer: RegExp]>([
    ["whose request it has answered", beginning, body.slice(9), /^HTTP\/1\.1 201 /],
    ["that sent no request", () => "", "", /^$/]
  ])("closes a connection %s without waiting for the client (R2)", function* ([, sent, rest, answer]) {
    const { key, settings } = yield* StartedBefore
    const { ended, signal, url } = yield* startService(settings)
    const { closed, write } = yield* open(url)
    yield* write(sent(key))
    assert.strictEqual((yield* createOver(url, key, minimal)).status, 201)
    yield* signal("SIGTERM")
    yield* eventually("new connections are refused", refuses(url))
    yield* write(rest)
    assert.deepStrictEqual(yield* Effect.timeoutOption(ended, "4 seconds"), Option.some(0))
    assert.match(yield* closed, answer)
  })
})
