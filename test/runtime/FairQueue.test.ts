import { Arbitrary, Effect, Exit, Fiber, Layer, Schema } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { makeRequestQueue, QueueLimits, queueLimits, RequestQueues } from "../../src/runtime/FairQueue.ts"
import { CurrentDeadline } from "../../src/runtime/Deadline.ts"
import { casesOf } from "../domain/routing/propertyRuns.ts"
import { assert, describe, it } from "../support/it.ts"

const limits = { inProgress: 6, waiting: 3000 }

/** Tenants of which each may start one request. */
const different = Array.from({ length: limits.inProgress }, (_, n) => `tenant ${n}`)

/** What a request does once it is in progress. A request that waited beyond its deadline is never started. */
type Kind = "stays" | "ends at once" | "fails at once" | "dies at once" | "deadline has passed"
const kinds: ReadonlyArray<Kind> = ["stays", "ends at once", "fails at once", "dies at once", "deadline has passed"]

interface Request {
  readonly id: number
  readonly tenant: string
  readonly kind: Kind
}

/** The interface of the queue and of its reference: requests in progress, and all requests ever started, in order. */
interface Subject {
  readonly arrive: (request: Request) => void
  /** Ends a request that is in progress, or interrupts one that waits. */
  readonly end: (id: number) => void
  readonly inProgress: Set<number>
  readonly started: Array<number>
}

/** The queue itself. Nothing in it waits for the scheduler, so each step has taken effect when it returns. */
const makeSubject = (): Subject => {
  const queue = makeRequestQueue(limits)
  const fibers = new Map<number, Fiber.Fiber<unknown, unknown>>()
  const inProgress = new Set<number>()
  const started: Array<number> = []
  const ends = { "ends at once": Effect.void, "fails at once": Effect.fail("no"), "dies at once": Effect.die("no") }
  return {
    arrive: ({ id, kind, tenant }) => {
      const work = Effect.suspend((): Effect.Effect<unknown, string> => {
        started.push(id)
        inProgress.add(id)
        return kind in ends ? ends[kind as keyof typeof ends] : Effect.never
      })
      const request = Effect.onExit(work, () => Effect.sync(() => inProgress.delete(id)))
      const until = performance.now() + (kind === "deadline has passed" ? -1 : 60_000)
      fibers.set(id, Effect.runFork(Effect.provideService(queue(tenant, request), CurrentDeadline, { until })))
    },
    end: (id) => fibers.get(id)?.interruptUnsafe(),
    inProgress,
    started
  }
}

/** A simple, slow reference. */
const makeReference = (): Subject => {
  const inProgress = new Set<number>()
  const started: Array<number> = []
  const holders: Array<Request> = []
  const lines: Array<{ readonly tenant: string; requests: Array<Request> }> = []
  const start = (request: Request) => {
    started.push(request.id)
    if (request.kind !== "stays" && request.kind !== "deadline has passed") return
    inProgress.add(request.id)
    holders.push(request)
  }
  const mayStart = (tenant: string) => {
    const held = holders.filter((holder) => holder.tenant === tenant && inProgress.has(holder.id)).length
    return held < limits.inProgress - inProgress.size
  }
  const serve = () => {
    for (;;) {
      const index = lines.findIndex(({ tenant }) => mayStart(tenant))
      const [line] = index < 0 ? [] : lines.splice(index, 1)
      const request = line?.requests.shift()
      if (line === undefined || request === undefined) return
      if (line.requests.length > 0) lines.push(line)
      if (request.kind !== "deadline has passed") start(request)
    }
  }
  return {
    arrive: (request) => {
      if (mayStart(request.tenant)) return start(request)
      const line = lines.find(({ tenant }) => tenant === request.tenant)
      if (line === undefined) lines.push({ tenant: request.tenant, requests: [request] })
      else if (line.requests.length < limits.waiting) line.requests.push(request)
    },
    end: (id) => {
      inProgress.delete(id)
      const index = lines.findIndex(({ requests }) => requests.some((request) => request.id === id))
      const line = lines[index]
      if (line !== undefined) line.requests = line.requests.filter((request) => request.id !== id)
      if (line?.requests.length === 0) lines.splice(index, 1)
      serve()
    },
    inProgress,
    started
  }
}

const step = Arbitrary.schema(
  Schema.Struct({
    arriving: Schema.Literals([0, 1, 2, 3, 5, 2000]),
    kind: Schema.Literals(kinds),
    tenant: Schema.Literals(["a", "b", "c", "d"]),
    /** The request that ends or leaves the queue, by number. */
    ending: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1_000_000 })),
    oneInProgress: Schema.Boolean
  })
)

describe("a fair queue", () => {
  it.prop(
    "starts and ends requests exactly like a reference model, with thousands waiting",
    [Arbitrary.array(step, { minLength: 1, maxLength: 60 })],
    ([steps]) => {
      const subjects = [makeSubject(), makeReference()] as const
      const [queue, reference] = subjects
      let agreed = 0
      const agree = () => {
        assert.deepStrictEqual(queue.inProgress, reference.inProgress)
        assert.deepStrictEqual(queue.started.slice(agreed), reference.started.slice(agreed))
        agreed = queue.started.length
      }
      let ids = 0
      for (const { arriving, ending, kind, oneInProgress, tenant } of steps) {
        for (let n = 0; n < arriving; n++) {
          const id = ids++
          for (const subject of subjects) subject.arrive({ id, tenant, kind })
        }
        agree()
        const candidates = oneInProgress ? [...reference.inProgress] : Array.from({ length: ids }, (_, id) => id)
        const id = candidates[ending % Math.max(1, candidates.length)]
        if (id !== undefined) for (const subject of subjects) subject.end(id)
        agree()
      }
      while (reference.inProgress.size > 0) {
        for (const id of [...reference.inProgress]) for (const subject of subjects) subject.end(id)
        agree()
      }
      for (const [n, tenant] of different.entries()) {
        for (const subject of subjects) subject.arrive({ id: ids + n, tenant, kind: "stays" })
      }
      agree()
      assert.strictEqual(queue.inProgress.size, limits.inProgress, "every place was given back")
      for (const n of different.keys()) queue.end(ids + n)
    },
    casesOf(40)
  )

  it("does not overflow the stack when 12,000 waiting requests end as soon as they start", () => {
    const { arrive, end, inProgress, started } = makeSubject()
    for (const [id, tenant] of different.entries()) arrive({ id, tenant, kind: "stays" })
    for (let n = 0; n < 12_000; n++) {
      arrive({ id: limits.inProgress + n, tenant: `${n % 4}`, kind: kinds[1 + (n % 4)] ?? "stays" })
    }
    end(0)
    assert.strictEqual(inProgress.size, limits.inProgress - 1)
    assert.lengthOf(started, limits.inProgress + 9_000, "those whose deadline has passed do not start")
  })

  it.live("leaves places to others that a tenant's stalled requests cannot take, and limits its waiting", function* () {
    const queue = makeRequestQueue({ inProgress: 3, waiting: 2 })
    const flood = yield* Effect.forEach(Array.from({ length: 9 }), () => Effect.forkChild(queue("one", Effect.never)))
    const [, , , , ...refused] = flood
    for (const fiber of refused) {
      assert.deepStrictEqual(yield* Fiber.await(fiber), Exit.fail(new ServiceUnavailable()))
    }
    assert.strictEqual(yield* queue("another", Effect.succeed("served")), "served")
    yield* Fiber.interruptAll(flood)
  })

  it.live("fails a waiting request at its deadline, not before, without running it (D14)", function* () {
    const queue = makeRequestQueue({ inProgress: 1, waiting: 1 })
    const held = yield* Effect.forkChild(queue("one", Effect.never))
    yield* Effect.yieldNow
    const waiting = (until: number) =>
      Effect.provideService(queue("one", Effect.die("it must not begin")), CurrentDeadline, { until })
    for (const until of [performance.now() + 50, performance.now() - 1]) {
      assert.deepStrictEqual(yield* Effect.exit(waiting(until)), Exit.fail(new ServiceUnavailable()))
      assert.isAtLeast(performance.now(), until - 2)
    }
    yield* Fiber.interrupt(held)
    yield* queue("one", Effect.void)
  })

  it.effect("refuses each request that would have to wait, if its limit of waiting requests is 0", function* () {
    const queue = makeRequestQueue({ inProgress: 1, waiting: 0 })
    const inside = Effect.exit(queue("one", Effect.void))
    assert.deepStrictEqual(yield* queue("one", inside), Exit.fail(new ServiceUnavailable()))
    yield* queue("one", Effect.void)
  })

  it.live("keeps a timer for each request while it waits, and none for a refused one", function* () {
    const queue = makeRequestQueue({ inProgress: 1, waiting: 1 })
    const inTime = Effect.provideService(CurrentDeadline, { until: performance.now() + 60_000 })
    const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length
    const running = yield* Effect.forkChild(queue("one", Effect.never), { startImmediately: true })
    const before = timers()
    const wait = Effect.forkChild(inTime(queue("one", Effect.void)), { startImmediately: true })
    const leaving = yield* wait
    assert.strictEqual(timers(), before + 1, "control")
    for (let n = 0; n < 100; n += 1) {
      assert.instanceOf(yield* Effect.flip(inTime(queue("one", Effect.void))), ServiceUnavailable)
    }
    assert.strictEqual(timers(), before + 1)
    yield* Fiber.interrupt(leaving)
    assert.strictEqual(timers(), before)
    const started = yield* wait
    yield* Fiber.interrupt(running)
    yield* Fiber.join(started)
    assert.strictEqual(timers(), before)
  })
})

describe("the request queues of the database", () => {
  it("are limited by DATABASE_QUEUE", () => {
    assert.deepStrictEqual(queueLimits(2000), { statements: 2000, inProgress: 250, waiting: 1750, imports: 2000 })
    assert.deepStrictEqual(queueLimits(9), { statements: 9, inProgress: 2, waiting: 7, imports: 9 })
  })

  it.effect("are separate for reads and writes, so that stalled writes delay no reads", () =>
    Effect.gen(function* () {
      const { reads, writes } = yield* RequestQueues
      for (const [stalled, free] of [
        [writes, reads],
        [reads, writes]
      ] as const) {
        const stalling = yield* Effect.forkChild(stalled("one", Effect.never), { startImmediately: true })
        assert.instanceOf(yield* Effect.flip(stalled("one", Effect.void)), ServiceUnavailable)
        assert.strictEqual(yield* free("one", Effect.succeed("read")), "read")
        yield* Fiber.interrupt(stalling)
      }
    }).pipe(
      Effect.provide(
        RequestQueues.layer.pipe(
          Layer.provide(Layer.succeed(QueueLimits, { statements: 8, inProgress: 1, waiting: 0, imports: 8 }))
        )
      )
    )
  )
})
