import { inspect } from "node:util"
import { Cause, Clock, Deferred, Effect, Exit, Fiber, Layer, Option, Result } from "effect"
import { TestClock } from "effect/testing"
import { type CredentialId } from "../../../src/domain/Identifiers.ts"
import type { Provider } from "../../../src/domain/Provider.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { AuthenticationFailed, Cipher, type OpenFailure, UnknownKeyId } from "../../../src/port/Cipher.ts"
import { CredentialPools, type PoolOwner } from "../../../src/port/CredentialPools.ts"
import type { Credentials } from "../../../src/port/Credentials.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import type { Lease } from "../../../src/service/routing/Lease.ts"
import type { AttemptOptions } from "../../../src/service/routing/NextAttempt.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { type Exhausted, UnknownWorkspace } from "../../../src/service/routing/RouterErrors.ts"
import type { RequestPlan } from "../../../src/service/routing/RouterRequest.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { inMemory } from "../../support/memory/inMemory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { changing, create, update } from "../../support/service/asTenant.ts"
import { attempt, leaseOf, planOf, requestOf } from "../../support/service/planning.ts"
import { serviceAccount } from "../../support/keys/cloudKeys.ts"
import { assert, describe, it, itWith } from "../../support/it.ts"

const service = Layer.provideMerge(Router.layer, inMemory())
const inService = itWith(service)
const onMemory = itWith(inMemory())
const key = "sk-fake-0123456789-0123456789-AbCd"

const stepsOf = ({ steps }: RequestPlan) => steps.map((step) => (step._tag === "Own" ? step.credential_id : "shared"))

/** A router whose cipher fails to open a key as long as `failure` returns a failure. */
const routerOn = (failure: () => OpenFailure | undefined) => {
  const cipher = changing(Cipher, (cipher) => ({
    ...cipher,
    read: (sealed, context, use) => {
      const failed = failure()
      return failed === undefined ? cipher.read(sealed, context, use) : Result.fail(failed)
    }
  }))
  return Layer.fresh(Layer.provide(Router.layer, cipher))
}

const rejected: Outcome = { _tag: "Rejected" }
const succeeded: Outcome = { _tag: "Succeeded" }

describe("a lease", () => {
  inService("holds the exact key in a buffer that is zeroed however its scope ends (Q21)", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    const held: Array<Buffer> = []
    const leases: Array<Lease> = []
    const using = <A, E>(use: (leased: Lease) => Effect.Effect<A, E>) =>
      Effect.scoped(
        Effect.flatMap(leaseOf(owner), (leased) => {
          held.push(leased.bytes)
          leases.push(leased)
          assert.strictEqual(leased.bytes.toString(), key)
          assert.strictEqual(leased.text(), key)
          return use(leased)
        })
      )
    yield* using(() => Effect.void)
    yield* Effect.exit(using(() => Effect.fail("failed")))
    yield* Effect.exit(using(() => Effect.die("died")))
    yield* Effect.exit(using(() => Effect.interrupt))
    const started = yield* Deferred.make<true>()
    const fiber = yield* Effect.forkChild(using(() => Effect.andThen(Deferred.succeed(started, true), Effect.never)))
    yield* Deferred.await(started)
    assert.isTrue(
      held.at(-1)?.some((byte) => byte !== 0),
      "control: not zero inside the scope"
    )
    yield* Fiber.interrupt(fiber)
    assert.lengthOf(held, 5)
    for (const buffer of held) assert.isTrue(buffer.length === key.length && buffer.every((byte) => byte === 0))
    for (const leased of leases) {
      assert.throws(() => leased.text(), "ended")
      assert.throws(() => leased.bytes, "ended")
    }
  })

  inService("does not show its key as text, as JSON or by inspect (Q22)", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    yield* Effect.scoped(
      Effect.map(leaseOf(owner), (leased) => {
        const shown = [String(leased), JSON.stringify({ leased }), inspect({ leased }, { depth: 9, showHidden: true })]
        for (const text of shown) {
          assert.include(text, "<lease>")
          for (let at = 0; at + 9 <= key.length; at++) assert.notInclude(text, key.slice(at, at + 9))
        }
        assert.include(leased.text(), key.slice(0, 9), "control")
      })
    )
  })
})

describe("a run of attempts", () => {
  /** The outcome of an attempt with each key, by number. */
  const answers: ReadonlyArray<Outcome> = [
    rejected,
    { _tag: "RateLimited", retry_after: 30_000 },
    { _tag: "QuotaExhausted" }
  ]

  inService.prop(
    "attempts only planned steps, each once, and succeeds with one good key among dead ones (Q29)",
    [integer(0, 12), elementOf([true, false])],
    function* ([dead, isGood]) {
      const owner = yield* newTenant
      for (let n = 0; n < dead; n++) yield* create(owner, { name: String(n) })
      if (isGood) yield* create(owner, { name: "good" })
      const { run } = yield* Router
      const alone = { targets: [{ provider: "azure", endpoint: { shared: false } }] }
      const planned = stepsOf(yield* planOf(owner, alone))
      const tried: Array<string> = []
      let discarded = 0
      const walked = yield* Effect.result(
        run(requestOf(owner, alone), (step, lease) =>
          Effect.sync(() => {
            const { credential_id } = step._tag === "Own" ? step : assert.fail("no own step")
            assert.strictEqual(lease?.terms.credential_id, credential_id)
            tried.push(credential_id)
            const isLast = isGood && tried.length > dead
            const outcome = isLast ? succeeded : (answers[tried.length % answers.length] ?? rejected)
            return { outcome, value: credential_id, discard: Effect.sync(() => void (discarded += 1)) }
          })
        )
      )
      assert.deepStrictEqual(tried, planned)
      assert.strictEqual(discarded, dead)
      if (Result.isSuccess(walked)) {
        assert.isTrue(isGood)
        return assert.strictEqual(walked.success, tried.at(-1))
      }
      assert.isFalse(isGood)
      const error = walked.failure
      if (error._tag !== "Exhausted") return assert.fail("not exhausted")
      assert.lengthOf(error.past, dead)
      assert.strictEqual(error.retry_at === null, dead === 0)
      const next = yield* planOf(owner, alone)
      assert.lengthOf(next.steps, 0)
      assert.strictEqual(next.retry_at, error.retry_at)
    }
  )

  inService("stops at a refused or abandoned request, returns its value and parks nothing (Q27)", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    yield* create(owner)
    const { run } = yield* Router
    for (const outcome of [{ _tag: "RequestRefused" }, { _tag: "Abandoned" }] as const) {
      let tried = 0
      const value = yield* run(requestOf(owner), () => Effect.sync(() => ({ outcome, value: (tried += 1) })))
      assert.strictEqual(value, 1)
      assert.lengthOf((yield* planOf(owner)).steps, 3)
    }
  })

  inService("tries the next key if one does not serve the request, and returns the last such answer", function* () {
    const { run } = yield* Router
    const unserved: Outcome = { _tag: "NotServed" }
    const forbidden: Outcome = { _tag: "Forbidden" }
    const cases: ReadonlyArray<readonly [ReadonlyArray<Outcome>, value: number | null, parked: number]> = [
      [[unserved, unserved], 2, 0],
      [[unserved, succeeded], 2, 0],
      [[unserved, rejected], null, 1],
      [[rejected, unserved], 2, 1],
      // The second bare 403 says nothing about its key.
      [[forbidden, forbidden], 2, 1],
      [[forbidden, unserved, forbidden], 3, 1]
    ]
    for (const [outcomes, value, parked] of cases) {
      const owner = yield* newTenant
      for (const _ of outcomes) yield* create(owner)
      const alone = requestOf(owner, { targets: [{ provider: "azure", endpoint: { shared: false } }] })
      const discarded: Array<number> = []
      let tried = 0
      const answer = yield* Effect.result(
        run(alone, () =>
          Effect.sync(() => {
            const n = (tried += 1)
            const outcome = outcomes[n - 1] ?? assert.fail("too many attempts")
            return { outcome, value: n, discard: Effect.sync(() => void discarded.push(n)) }
          })
        )
      )
      const returned = Result.isSuccess(answer) ? answer.success : null
      assert.strictEqual(returned, value, JSON.stringify(outcomes))
      const others = outcomes.map((_, at) => at + 1).filter((n) => n !== returned)
      assert.sameMembers(discarded, others, "each answer is returned or discarded")
      const { steps } = yield* (yield* Router).plan(alone)
      assert.lengthOf(steps, outcomes.length - parked)
    }
  })

  inService("discards an answer that was not served if the request is interrupted", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    yield* create(owner)
    const { run } = yield* Router
    const isWaiting = yield* Deferred.make<boolean>()
    let tried = 0
    let discarded = 0
    const fiber = yield* Effect.forkChild(
      run(requestOf(owner), () =>
        Effect.gen(function* () {
          if ((tried += 1) === 2) {
            yield* Deferred.succeed(isWaiting, true)
            return yield* Effect.never
          }
          const discard = Effect.sync(() => void (discarded += 1))
          return { outcome: { _tag: "NotServed" } as const, value: "", discard }
        })
      )
    )
    yield* Deferred.await(isWaiting)
    assert.strictEqual(discarded, 0)
    yield* Fiber.interrupt(fiber)
    assert.strictEqual(discarded, 1)
  })

  it.effect("plans each attempt with what was changed meanwhile (Q19, Q23, E4)", function* () {
    /** What a request tries whose first key is rejected, if somebody makes a change meanwhile. */
    const triedDespite = (
      change: (owner: PoolOwner, id: CredentialId) => Effect.Effect<unknown, unknown, Credentials>
    ) =>
      Effect.gen(function* () {
        const owner = yield* newTenant
        const { id } = yield* create(owner)
        const { run } = yield* Router
        let isChanged = false
        const tried = run(requestOf(owner), () =>
          Effect.gen(function* () {
            if (!isChanged) yield* change(owner, id)
            isChanged = true
            return { outcome: rejected, value: "none" }
          })
        )
        const error = yield* Effect.flip(tried)
        assert(typeof error === "object" && error !== null && "past" in error)
        const { past } = error as Exhausted
        return past.map(({ credential_id, result }) => [credential_id === null ? "shared" : "own", result])
      }).pipe(Effect.provide(Layer.fresh(service)))
    const own = [["own", "Rejected"]]
    assert.deepStrictEqual(yield* triedDespite((owner, id) => update(owner, id, { is_required: true })), own)
    const renamed = yield* triedDespite((owner, id) => update(owner, id, { name: "renamed" }))
    assert.deepStrictEqual(renamed, [...own, ["shared", "Rejected"]])
  })

  onMemory("skips shared capacity if a verified key of its provider does not open (E17)", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    const own = yield* create(owner, { provider: "xai" })
    let failure: OpenFailure | undefined
    const change = { targets: [{ provider: "azure" }, { provider: "xai" }], strategy: "provider_first" }
    yield* Effect.gen(function* () {
      const { run } = yield* Router
      const attempted = Effect.gen(function* () {
        const tried: Array<string> = []
        const attempt = run(requestOf(owner, change), (step) =>
          Effect.sync(() => {
            tried.push(step._tag === "Own" ? step.credential_id : step.provider)
            return { outcome: rejected, value: "" }
          })
        )
        assert.strictEqual((yield* Effect.flip(attempt))._tag, "Exhausted")
        return tried
      })
      failure = new AuthenticationFailed()
      assert.deepStrictEqual(yield* attempted, [own.id, "xai"], "azure has a key that may yet serve")
      yield* TestClock.adjust("1 minute")
      assert.lengthOf(yield* attempted, 4, "control: a key that is rejected leaves the request to shared capacity")
    }).pipe(
      Effect.provide(
        routerOn(() => {
          const once = failure
          failure = undefined
          return once
        })
      )
    )
  })

  onMemory("uses a key that was rewrapped since its pool was read, even if its old KEK is gone", function* () {
    const owner = yield* newTenant
    const { id } = yield* create(owner)
    const { credentials } = yield* Memory
    const row = credentials.get(id) ?? assert.fail("no row")
    const rewrapped = "a new kek"
    let isRetired = false
    const cipher = changing(Cipher, (cipher) => ({
      ...cipher,
      read: (sealed, context, use) =>
        isRetired && sealed.kek_id !== rewrapped
          ? Result.fail(new UnknownKeyId({ kek_id: sealed.kek_id }))
          : cipher.read({ ...sealed, kek_id: row.sealed.kek_id }, context, use)
    }))
    yield* Effect.gen(function* () {
      const { run } = yield* Router
      yield* planOf(owner)
      yield* TestClock.adjust("1 second")
      credentials.set(id, { ...row, sealed: { ...row.sealed, kek_id: rewrapped } })
      isRetired = true
      const served = run(requestOf(owner), (step) => Effect.succeed({ outcome: succeeded, value: step._tag }))
      assert.strictEqual(yield* served, "Own")
    }).pipe(Effect.provide(Layer.fresh(Layer.provide(Router.layer, cipher))))
  })

  inService("says when to retry if the only key is on trial", function* () {
    const owner = yield* newTenant
    yield* create(owner, { is_required: true })
    const { run } = yield* Router
    yield* attempt(owner, rejected)
    yield* TestClock.adjust("1 minute")
    const now = yield* Clock.currentTimeMillis
    const served = run(requestOf(owner), () => Effect.succeed({ outcome: succeeded, value: "" }))
    const error = yield* Effect.scoped(Effect.andThen(leaseOf(owner), Effect.flip(served)))
    assert.strictEqual(error._tag === "Exhausted" && error.retry_at, now + 1000)
  })

  onMemory("ends the trial of a key that does not open (Q24)", function* () {
    const owner = yield* newTenant
    yield* create(owner, { is_required: true })
    let failure: OpenFailure | undefined
    yield* Effect.gen(function* () {
      const { run } = yield* Router
      yield* attempt(owner, rejected)
      yield* TestClock.adjust("1 minute")
      const served = run(requestOf(owner), ({ _tag }) => Effect.succeed({ outcome: succeeded, value: _tag }))
      failure = new AuthenticationFailed()
      assert.strictEqual((yield* Effect.flip(served))._tag, "Exhausted")
      failure = undefined
      assert.strictEqual(yield* served, "Own")
    }).pipe(Effect.provide(routerOn(() => failure)))
  })

  inService("fails with the error that an attempt returns, and parks nothing (Q27)", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    const { run } = yield* Router
    for (const failure of ["lost", new UnknownWorkspace()]) {
      assert.strictEqual(yield* Effect.flip(run(requestOf(owner), () => Effect.fail(failure))), failure)
      assert.lengthOf((yield* planOf(owner)).steps, 2)
    }
  })

  inService("gives a trial back however its scope ends, unless it is to be kept (Q24)", function* () {
    const owner = yield* newTenant
    yield* create(owner, { is_required: true })
    yield* attempt(owner, rejected)
    yield* TestClock.adjust("1 minute")
    const tries = (options: AttemptOptions = {}) => Effect.exit(Effect.scoped(leaseOf(owner, {}, options)))
    const trial = { keepTrial: true, request_id: "mine" }
    for (const _ of ["first", "again"]) assert.isTrue(Exit.isSuccess(yield* tries()))
    for (const _ of ["first", "repeated"]) assert.isTrue(Exit.isSuccess(yield* tries(trial)))
    assert.isTrue(Exit.isFailure(yield* tries()), "another request")
    yield* TestClock.adjust("30 seconds")
    assert.isTrue(Exit.isSuccess(yield* tries()))
  })
})

describe("redaction", () => {
  inService("replaces a leased key in every encoding in which upstreams repeat it (Q22)", function* () {
    const owner = yield* newTenant
    const secret = 'sk-"fake"/0123456789+0123456789='
    const material = JSON.stringify({ api_key: secret, region: "us" })
    const { id } = yield* create(owner, { provider: "openai", key: material })
    const { redact } = yield* Router
    const bytes = Buffer.from(secret)
    const percent = encodeURIComponent(secret)
    const basic = ["", "u", "us"].map((user) => Buffer.from(`${user}:${secret}:`).toString("base64"))
    const forms = [
      secret,
      material,
      percent,
      percent.replace(/%../g, (code) => code.toLowerCase()),
      JSON.stringify({ error: secret }),
      bytes.toString("base64"),
      bytes.toString("base64url"),
      bytes.toString("hex"),
      bytes.toString("hex").toUpperCase(),
      ...basic
    ]
    const text = forms.map((form) => `Incorrect API key provided: ${form}.`).join("\n")
    const [redacted, leased] = yield* Effect.scoped(
      Effect.map(
        leaseOf(owner, { targets: [{ provider: "openai" }] }),
        (leased) => [redact(text, leased), leased] as const
      )
    )
    assert.strictEqual(redacted.split(`<${id}>`).length - 1, forms.length)
    for (const form of forms) assert.notInclude(redacted, form)
    assert.strictEqual(redact(text, leased), text, "of a lease that has record nothing is replaced, and nothing fails")
    assert.strictEqual(redact(text, undefined), text)
  })

  inService("keeps other keys, public members of a key's JSON, and very short keys", function* () {
    const owner = yield* newTenant
    const { private_key_id: _, ...account } = serviceAccount
    const { redact } = yield* Router
    const text = `${JSON.stringify(account)} said sk-another-0123456789 - to ${account.token_uri}`
    const redactedOf = (key: string, provider: Provider) =>
      Effect.gen(function* () {
        const { id } = yield* create(owner, { provider, key })
        const lease = leaseOf(owner, { targets: [{ provider }] })
        const redacted = yield* Effect.scoped(Effect.map(lease, (leased) => redact(text, leased)))
        return redacted.replaceAll(id, "id")
      })
    assert.strictEqual(yield* redactedOf("-", "xai"), text)
    assert.strictEqual(
      yield* redactedOf(JSON.stringify({ ...serviceAccount, region: "us-east5" }), "google-vertex"),
      text.replace(JSON.stringify(account.private_key).slice(1, -1), "<id>")
    )
  })
})

describe("the router", () => {
  onMemory("fails with PoolsUnavailable if the database fails, even if a workspace is unknown too (E21)", function* () {
    const owner = yield* newTenant
    const failure = new DatabaseFailure({ kind: "ConnectionError", sqlstate: "08006", constraint: undefined })
    // As Effect combines what several fibers end with.
    const both = Effect.failCause(
      Cause.combine(Cause.fail(new UnknownWorkspace()), Cause.fail(failure))
    ) as Effect.Effect<never, DatabaseFailure>
    const cut = changing(CredentialPools, (pools) => ({ ...pools, versions: () => both }))
    const planned = Effect.provide(planOf(owner), Layer.fresh(Layer.provide(Router.layer, cut)))
    assert.strictEqual((yield* Effect.flip(planned))._tag, "PoolsUnavailable")
  })

  onMemory("refuses providers with more than 5,000 credentials together, before it reads any", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    let reads = 0
    const large = changing(CredentialPools, (pools) => ({
      ...pools,
      versions: (...wanted) =>
        Effect.map(
          pools.versions(...wanted),
          Option.map((found) => ({ ...found, pools: found.pools.map((pool) => ({ ...pool, members: 2500 })) }))
        ),
      load: (...wanted) => Effect.tap(pools.load(...wanted), () => Effect.sync(() => void (reads += 1)))
    }))
    const planning = (...providers: ReadonlyArray<string>) =>
      planOf(owner, { targets: providers.map((provider) => ({ provider })) })
    yield* Effect.gen(function* () {
      assert.strictEqual((yield* Effect.flip(planning("azure", "xai", "openai")))._tag, "TooManyCredentials")
      assert.strictEqual(reads, 0)
      yield* planning("azure", "xai")
    }).pipe(Effect.provide(Layer.fresh(Layer.provide(Router.layer, large))))
  })
})
