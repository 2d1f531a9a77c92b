import { assert, describe, it, layer } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Fiber, Layer, Option, Redacted } from "effect"
import { KeyEncryption } from "../../src/crypto/KeyEncryption.ts"
import * as CipherAes256Gcm from "../../src/crypto/CipherAes256Gcm.ts"
import { KeyStoreUnavailable, UnknownKeyId } from "../../src/service/CipherErrors.ts"
import { Cipher } from "../../src/service/Cipher.ts"
import { Credentials } from "../../src/service/Credentials.ts"
import type { Settings } from "../../src/Settings.ts"
import { created, minimal } from "../support/Bodies.ts"
import { childProcesses } from "../support/childProcesses.ts"
import { eventually } from "../support/eventually.ts"
import { create, get, send } from "../support/HttpProbe.ts"
import * as RecordingLive from "../support/Recording.ts"
import { Recording } from "../support/Recording.ts"
import { assertRefused } from "../support/Refusal.ts"
import { addKeys, addToken, pin, type SoftHsm, softHsm, withoutSoftHsm, withoutTokens } from "../support/SoftHsm.ts"
import * as TestServiceLive from "../support/TestService.ts"
import { type Parts, TestService } from "../support/TestService.ts"

const recorded = (changes: TestServiceLive.Changes) =>
  Layer.provideMerge(TestServiceLive.layerWith(changes), RecordingLive.layer)

/** Create answers 500 with this reason in the log and stores nothing; get and liveness answer meanwhile. */
const createFails = Effect.fnUntraced(function* (id: string, reason: RegExp) {
  const { rowCount, tenant, url } = yield* TestService
  const { management_key } = yield* tenant
  const before = yield* rowCount
  const [failed, found, live] = yield* Effect.all(
    [create(url, management_key, minimal), get(url, management_key, id), send(url, { path: "/health/live" })],
    { concurrency: 3 }
  )
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
  return String(created(yield* create(url, (yield* tenant).management_key, minimal))["id"])
})

const creates = Effect.gen(function* () {
  const { tenant, url } = yield* TestService
  const { status } = yield* create(url, (yield* tenant).management_key, minimal)
  return status === 201
})

const down = Effect.fail(new KeyStoreUnavailable({ reason: "it is down" }))
/** What the replaced key store answers; a test changes it while the service runs. */
const store: { wrap: KeyEncryption["Service"]["wrap"] | undefined } = { wrap: undefined }

const replaced = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const keys = Context.get(parts, KeyEncryption)
  const faulty = Context.add(parts, KeyEncryption, {
    ...keys,
    wrap: (...asked) => Effect.suspend(() => (store.wrap ?? keys.wrap)(...asked))
  })
  const cipher = yield* Effect.provide(Effect.provide(Cipher, Layer.fresh(CipherAes256Gcm.layer)), faulty)
  return Context.add(parts, Credentials, yield* Effect.provideService(Credentials.make, Cipher, cipher))
})

layer(recorded({ parts: replaced }), { excludeTestServices: true })("a key store that fails (R10)", (it) => {
  it.effect("down, or without the key that seals: create 500, get 200, and well again when it is back", () =>
    Effect.gen(function* () {
      const id = yield* createdOne
      store.wrap = () => down
      yield* createFails(id, /it is down/)
      store.wrap = (kek_id) => Effect.fail(new UnknownKeyId({ kek_id }))
      yield* createFails(id, /KeyStoreUnavailable/)
      store.wrap = undefined
      assert.isTrue(yield* creates)
    })
  )

  it.effect("slow: get and liveness answer while a create still waits for it", () =>
    Effect.gen(function* () {
      const { tenant, url } = yield* TestService
      const { management_key } = yield* tenant
      const id = yield* createdOne
      const asked = yield* Deferred.make<true>()
      const answer = yield* Deferred.make<true>()
      store.wrap = () => Effect.andThen(Deferred.succeed(asked, true), Effect.andThen(Deferred.await(answer), down))
      const waiting = yield* Effect.forkChild(create(url, management_key, minimal))
      yield* Deferred.await(asked)
      assert.strictEqual((yield* get(url, management_key, id)).status, 200)
      assert.strictEqual((yield* send(url, { path: "/health/live" })).status, 200)
      assert.isUndefined(waiting.pollUnsafe())
      yield* Deferred.succeed(answer, true)
      assertRefused(yield* Fiber.join(waiting), "InternalError")
      store.wrap = undefined
      assert.isTrue(yield* creates)
    })
  )
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
    return recorded({ settings })
  })
).pipe(Layer.provideMerge(HsmLive))

const wellAgain = eventually("it creates again", creates)

describe.skipIf(withoutSoftHsm !== undefined)(
  `a PKCS#11 token that fails (R10)${withoutSoftHsm === undefined ? "" : ` (skipped: ${withoutSoftHsm})`}`,
  () => {
    it.layer(onToken, { excludeTestServices: true })((it) => {
      it.effect("away: create 500, get 200, and well again when it is back", () =>
        Effect.gen(function* () {
          const id = yield* createdOne
          yield* withoutTokens(yield* Hsm, createFails(id, /KeyStoreUnavailable/))
          yield* wellAgain
        })
      )

      it.effect("hanging: create 500 at the deadline, get 200 meanwhile", () =>
        Effect.gen(function* () {
          const id = yield* createdOne
          const [pid] = childProcesses()
          if (pid === undefined) return assert.fail("no process")
          process.kill(pid, "SIGSTOP")
          yield* createFails(id, /does not answer|was lost/)
          yield* wellAgain
        })
      )

      it.effect("with another key under the label: create 500, get 200, and nothing is sealed under it (T12)", () =>
        Effect.gen(function* () {
          const hsm = yield* Hsm
          const id = yield* createdOne
          const replace = (other: string) =>
            addKeys(hsm, "byok", { id: "kek-1", remove: true }, { id: "kek-1", bytes: other })
          yield* replace(Buffer.alloc(32, "another key").toString("hex"))
          yield* createFails(id, /KeyStoreUnavailable/)
          yield* replace(bytes)
          yield* wellAgain
        })
      )
    })
  }
)
