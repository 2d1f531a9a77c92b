import { Clock, Context, type Duration, Effect, Exit, Layer, Random, Scope } from "effect"
import { TestClock } from "effect/testing"
import type { CredentialId } from "../../../src/domain/Identifiers.ts"
import { CredentialPools, type PoolOwner } from "../../../src/port/CredentialPools.ts"
import { Parkings } from "../../../src/port/Parkings.ts"
import { AttemptMac } from "../../../src/port/AttemptMac.ts"
import * as AttemptMacLive from "../../../src/crypto/keyring/AttemptMacLive.ts"
import { Attempts, type Report } from "../../../src/service/routing/Attempts.ts"
import { decodeAttempt } from "../../../src/service/routing/attemptText.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { fixedKeyring, ringOf } from "../../support/keys/keyrings.ts"
import { integer } from "../../support/memory/arbitraries.ts"
import { inMemory } from "../../support/memory/inMemory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { create } from "../../support/service/asTenant.ts"
import { requestOf } from "../../support/service/planning.ts"
import { assert, describe, itWith } from "../../support/it.ts"

const macsOf = (kek_id: string) => Layer.provide(AttemptMacLive.layer, fixedKeyring(ringOf(kek_id)))
const macs = macsOf("kek-1")
const onMemory = itWith(inMemory())

/** A clock that is off by some milliseconds, and whose monotonic time began earlier. */
const skewed = (clock: Clock.Clock, skew: number): Clock.Clock =>
  Object.assign(Object.create(clock) as Clock.Clock, {
    sleep: (duration: Duration.Duration) => clock.sleep(duration),
    currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + skew,
    monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + BigInt(Math.abs(skew)) * 1_000_000n
  })

/** An instance with its own memory and clock, over the stores of the test. A dying one stores nothing. */
const startInstance = Effect.fnUntraced(function* (skew: number, isDying: boolean) {
  const clock = yield* Clock.Clock
  const pools = yield* CredentialPools
  const parkings = yield* Parkings
  const inTime = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.provideService(effect, Clock.Clock, clock)
  const ports = Layer.mergeAll(
    Layer.succeed(CredentialPools, {
      time: inTime(pools.time),
      versions: (...given) => inTime(pools.versions(...given)),
      versionsOfKey: (...given) => inTime(pools.versionsOfKey(...given)),
      load: (...given) => inTime(pools.load(...given))
    }),
    Layer.succeed(Parkings, {
      ...parkings,
      store: (changes) => (isDying ? Effect.never : inTime(parkings.store(changes)))
    })
  )
  const layer = Attempts.layer.pipe(Layer.provide(Router.layer), Layer.provide(macs), Layer.provide(ports))
  const scope = yield* Scope.make()
  const building = Layer.buildWithMemoMap(Layer.fresh(layer), yield* Layer.makeMemoMap, scope)
  return Context.get(yield* Effect.provideService(building, Clock.Clock, skewed(clock, skew)), Attempts)
})

const answers = [
  { status: 401 },
  { status: 429, retry_after: "30" },
  { status: 429, retry_after: "Fri, 02 Jan 1970 00:00:00 GMT" },
  { status: 403 },
  { status: 402 },
  { status: 200 },
  { status: 500 },
  { status: 404 }
] as const
const skews = [0, 250_000, -180_000, 40_000_000]

const below = (limit: number) => Random.nextIntBetween(0, limit, { halfOpen: true })
const pick = <A>(list: ReadonlyArray<A>) => Effect.map(below(list.length), (n) => list[n] as A)

/** Hands out attempts, some while keys are on trial, and makes their reports. */
const handOut = Effect.fnUntraced(function* (
  owner: PoolOwner,
  ids: ReadonlyArray<CredentialId>,
  count: number,
  { next, report }: Attempts["Service"]
) {
  const reports: Array<Report> = []
  for (let n = 0; n < count; n += 1) {
    const credential_id = yield* pick(ids)
    const model = (yield* Random.nextBoolean) ? "a/model" : "another/model"
    const { text = assert.fail("no attempt") } = yield* Effect.scoped(
      next(requestOf(owner, { credential_id, model }), {})
    )
    const took_ms = yield* below(9000)
    reports.push({ attempt: text, took_ms, ...(yield* pick(answers)) })
    yield* TestClock.adjust(took_ms)
    // Later attempts begin with what some earlier ones came to.
    if (yield* Random.nextBoolean) yield* report(reports.at(-1) as Report)
    yield* TestClock.adjust(yield* below(60_000))
  }
  return reports
})

const storedIn = Effect.map(Memory, ({ parkings }) =>
  Array.from(parkings, ([name, { cause, epoch, key_version, strikes, until }]) =>
    JSON.stringify([name, key_version, epoch, strikes, cause, until])
  ).toSorted()
)

/** Delivers each report once or more, in any order, to instances that may die, and at least once to one that stores it. */
const deliver = Effect.fnUntraced(function* (reports: ReadonlyArray<Report>, instances: number, most: number) {
  const { parkings } = yield* Memory
  parkings.clear()
  const living: Array<Attempts["Service"]> = []
  const dying: Array<Attempts["Service"]> = []
  for (let n = 0; n < instances; n += 1) {
    living.push(yield* startInstance(skews[n % skews.length] ?? 0, false))
    dying.push(yield* startInstance(skews[(n + 1) % skews.length] ?? 0, true))
  }
  const deliveries: Array<readonly [Attempts["Service"], Report]> = []
  for (const report of reports) {
    const copies = yield* below(most)
    deliveries.push([yield* pick(living), report])
    for (let n = 0; n < copies; n += 1) deliveries.push([yield* pick([...living, ...dying]), report])
  }
  for (const [{ report }, one] of yield* Random.shuffle(deliveries)) {
    yield* report(one)
    yield* TestClock.adjust(yield* below(5000))
  }
  yield* TestClock.adjust("2 seconds")
  return yield* storedIn
})

describe("reports of attempts", () => {
  onMemory.prop(
    "park the same, whichever instances hear of them, in whatever order and how often (Q25, Q30)",
    [integer(1, 8), integer(1, 3), integer(0, 2 ** 31)],
    ([count, instances, seed]) =>
      Effect.gen(function* () {
        const owner = yield* newTenant
        const ids = [yield* create(owner), yield* create(owner)].map(({ id }) => id)
        const reports = yield* handOut(owner, ids, count, yield* startInstance(0, false))
        const once = yield* deliver(reports, 1, 1)
        const often = yield* deliver(reports, instances, 4)
        assert.deepStrictEqual(often, once)
      }).pipe(Random.withSeed(seed)),
    { arbitrary: { runs: 60 } }
  )

  onMemory("park for longer if each counts as of its arrival (control)", function* () {
    const owner = yield* newTenant
    const { id } = yield* create(owner)
    const { next } = yield* startInstance(0, false)
    const { text = "" } = yield* Effect.scoped(next(requestOf(owner, { credential_id: id }), {}))
    const stored = (report: Report) => Effect.map(deliver([report, report, report], 2, 1), ([one]) => one)
    const exact = { attempt: text, status: 401, took_ms: 10 }
    const [one, again] = [yield* stored(exact), yield* stored(exact)]
    assert.strictEqual(one, again)
    const { took_ms: _, ...arriving } = exact
    const first = yield* stored(arriving)
    yield* TestClock.adjust("1 minute")
    assert.notStrictEqual(yield* stored(arriving), first)
  })

  onMemory("without took_ms, count as of the first arrival in each instance", function* () {
    const owner = yield* newTenant
    const { id } = yield* create(owner)
    const { next, report } = yield* startInstance(0, false)
    const { text = "" } = yield* Effect.scoped(next(requestOf(owner, { credential_id: id }), {}))
    const reported = { attempt: text, status: 401 }
    yield* report(reported)
    yield* TestClock.adjust("2 seconds")
    const first = yield* storedIn
    assert.lengthOf(first, 1)
    for (const _ of ["again", "and again"]) {
      yield* report(reported)
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual(yield* storedIn, first)
    }
  })
})

describe("the text of an attempt", () => {
  onMemory("is taken by another instance, with the keyring that its KEK is in, for an hour", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    const [one, other] = [yield* startInstance(0, false), yield* startInstance(40_000_000, false)]
    const { text = "" } = yield* Effect.scoped(one.next(requestOf(owner), {}))
    yield* TestClock.adjust("1 hour")
    assert.strictEqual((yield* other.report({ attempt: text, status: 500 }))._tag, "UpstreamFailed")
    yield* TestClock.adjust(1)
    const late = yield* Effect.exit(other.report({ attempt: text, status: 500 }))
    assert.isTrue(Exit.isFailure(late))
    const mac = yield* Effect.provide(AttemptMac, macs)
    assert.isDefined(decodeAttempt(mac, text))
    assert.isUndefined(decodeAttempt(yield* Effect.provide(AttemptMac, macsOf("kek-2")), text))
  })

  onMemory("with any character changed, removed or added is not taken", function* () {
    const owner = yield* newTenant
    yield* create(owner)
    const { next } = yield* startInstance(0, false)
    const { text = "" } = yield* Effect.scoped(next(requestOf(owner), {}))
    const mac = yield* Effect.provide(AttemptMac, macs)
    assert.isDefined(decodeAttempt(mac, text), "control")
    for (let at = 0; at < text.length; at += 1) {
      const other = text[at] === "A" ? "B" : "A"
      for (const put of [other, "", `${text[at]}A`, `${text[at]}=`, `${text[at]}\n`]) {
        const altered = `${text.slice(0, at)}${put}${text.slice(at + 1)}`
        if (altered !== text) assert.isUndefined(decodeAttempt(mac, altered), `${at} ${put}`)
      }
    }
  })

  onMemory(
    "names no key, no label and no workspace, and holds the past of thousands of keys in 60 bytes each",
    function* () {
      const owner = yield* newTenant
      const { credential } = { credential: yield* create(owner) }
      const { next } = yield* startInstance(0, false)
      const { text = "" } = yield* Effect.scoped(next(requestOf(owner), {}))
      const shown = Buffer.from(text, "base64url").toString("latin1")
      for (const secret of [owner.workspace_id, credential.label, "sk-"]) assert.notInclude(shown, secret)
      assert.include(shown, owner.account_id, "control")
      const past = yield* Effect.scoped(next(requestOf(owner), { after: { attempt: text, status: 500 } }))
      assert.isAtMost((past.text ?? "").length - text.length, 60)
    }
  )
})
