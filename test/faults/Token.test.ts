import { Context, Duration, Effect, Layer, Option, Redacted } from "effect"
import type { Settings } from "../../src/wiring/Settings.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { childProcesses } from "../support/process/ServiceProcess.ts"
import { eventually } from "../support/process/eventually.ts"
import { create, send } from "../support/http/HttpProbe.ts"
import { Recording } from "../support/process/Recording.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import {
  addKeys,
  addToken,
  pin,
  type SoftHsm,
  softHsm,
  withoutSoftHsm,
  withoutTokens
} from "../support/keys/SoftHsm.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, describe, it } from "../support/it.ts"

/** Create answers 500 with this reason in the log and stores nothing; get and liveness answer meanwhile. */
const createFails = Effect.fnUntraced(function* (id: string, reason: RegExp) {
  const { rowCount, url } = yield* TestService
  const { create, get } = yield* TestService.tenant
  const before = yield* rowCount
  const [failed, found, live] = yield* Effect.all([create(minimal), get(id), send(url, { path: "/health/live" })], {
    concurrency: 3
  })
  assertRefused(failed, "InternalError")
  assert.strictEqual(found.status, 200)
  assert.strictEqual(live.status, 200)
  assert.strictEqual(yield* rowCount, before)
  const { all, logs } = yield* Recording
  const entry = logs.find(({ request_id }) => request_id === failed.headers["x-request-id"])
  assert.match(entry?.text ?? "", reason)
  assert.notInclude(yield* all, pin)
})

const createdOne = Effect.gen(function* () {
  const { tenant, url } = yield* TestService
  return createdId(yield* create(url, (yield* tenant).management_key, minimal))
})

const creates = Effect.gen(function* () {
  const { tenant, url } = yield* TestService
  const { status } = yield* create(url, (yield* tenant).management_key, minimal)
  return status === 201
})

const bytes = Buffer.alloc(32, "0123456789abcdef0123456789ABCDEF").toString("hex")

class Hsm extends Context.Service<Hsm, SoftHsm>()("byok/test/Hsm") {}

const HsmLive = Layer.effect(
  Hsm,
  Effect.tap(softHsm, (hsm) => addToken(hsm, "byok", { id: "kek-1", bytes }))
)

/** The service with its keys on a token, and nowhere else. */
const onToken = Layer.unwrap(
  Effect.map(Hsm, (hsm) => {
    const settings = (given: Settings): Settings => ({
      ...given,
      keyring: Option.none(),
      pkcs11: {
        module: Option.some(hsm.module),
        token: Option.some("byok"),
        pin: Option.some(Redacted.make(pin)),
        pinFile: Option.none(),
        keys: Option.some(["kek-1"]),
        deadline: Duration.seconds(1)
      }
    })
    return TestService.recordedWith({ settings })
  })
).pipe(Layer.provideMerge(HsmLive))

const wellAgain = eventually("it creates again", creates)

describe.skipIf(withoutSoftHsm !== undefined)(
  `a PKCS#11 token that fails (R10)${withoutSoftHsm === undefined ? "" : ` (skipped: ${withoutSoftHsm})`}`,
  () => {
    it.layer(onToken, { excludeTestServices: true })((it) => {
      it.effect("away: create is 500, get is 200, and create recovers with it", function* () {
        const id = yield* createdOne
        yield* withoutTokens(yield* Hsm, createFails(id, /KeyStoreUnavailable/))
        yield* wellAgain
      })

      it.effect("hanging: create is 500 at the deadline, get is 200 meanwhile", function* () {
        const id = yield* createdOne
        const [pid] = childProcesses()
        if (pid === undefined) return assert.fail("no process")
        process.kill(pid, "SIGSTOP")
        yield* createFails(id, /does not answer|was lost/)
        yield* wellAgain
      })

      it.effect("with another key under the label: create is 500, get 200, nothing is sealed (T12)", function* () {
        const hsm = yield* Hsm
        const id = yield* createdOne
        const replace = (other: string) =>
          addKeys(hsm, "byok", { id: "kek-1", remove: true }, { id: "kek-1", bytes: other })
        yield* replace(Buffer.alloc(32, "another key").toString("hex"))
        yield* createFails(id, /KeyStoreUnavailable/)
        yield* replace(bytes)
        yield* wellAgain
      })
    })
  }
)
