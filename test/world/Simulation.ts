import { type Clock, Context, Duration, Effect, Exit, type Fiber, Logger, Metric, Scheduler } from "effect"
import { Clock as CurrentClock } from "effect/Clock"
import { SecureRandom } from "effect/crypto"

/** Numbers that follow from a seed (sfc32). */
export class Random {
  #a: number
  #b = 0x9e3779b9
  #c = 0x243f6a88
  #n = 1

  constructor(seed: number) {
    this.#a = seed | 0
    for (let n = 0; n < 12; n += 1) this.next()
  }

  /** From 0 to 2³² - 1. */
  next(): number {
    const t = (this.#a + this.#b + this.#n) | 0
    this.#n = (this.#n + 1) | 0
    this.#a = this.#b ^ (this.#b >>> 9)
    this.#b = (this.#c + (this.#c << 3)) | 0
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + t
    return t >>> 0
  }

  below(limit: number): number {
    return Math.floor((this.next() / 2 ** 32) * limit)
  }

  /** True once in so many times. */
  once(times: number): boolean {
    return this.below(times) === 0
  }

  pick<A>(list: ReadonlyArray<A>): A {
    return list[this.below(list.length)] as A
  }
}

interface Timer {
  readonly at: number
  readonly task: () => void
}

/** What is repeated as long as time passes, at most once at each moment at which something else is due. */
interface Interval {
  readonly millis: number
  readonly task: () => void
  at: number
}

/** What waits outside of Effect, too: while a simulation runs, these are its own. */
const globals = ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "setImmediate"] as const

/** More tasks than any history needs: what takes more does not end. */
const mostTasks = 60_000

/** 1 January 2026. */
export const epoch = 1_767_225_600_000

/** When the monotonic time of a clock began, in milliseconds before the beginning. */
export const originOf = (skew: number) => 1e6 + Math.abs(skew)

/**
 * One process in which nothing happens by chance: a seed decides which of the tasks that are ready is next, and where a fiber
 * yields. Time moves only when no task is ready. Everything runs in one turn of the event loop, so what waits for anything
 * else, such as a promise, never goes on, and that is an error.
 */
export class Simulation {
  readonly #random: Random
  readonly #tasks: Array<() => void> = []
  readonly #timers = new Set<Timer>()
  readonly #intervals = new Set<Interval>()
  #untilYield = 1
  /** Milliseconds since the beginning. */
  now = 0
  /** How many tasks have run. */
  ran = 0
  /** The fibers that have begun and not ended. */
  fibers = 0

  constructor(seed: number) {
    this.#random = new Random(seed)
  }

  readonly #dispatcher: Scheduler.SchedulerDispatcher = {
    scheduleTask: (task) => void this.#tasks.push(task),
    flush: () => {
      throw new Error("A fiber was to end at once")
    }
  }
  readonly scheduler: Scheduler.Scheduler = {
    executionMode: "async",
    shouldYield: ({ currentOpCount }) => {
      this.#untilYield -= 1
      // A fiber that yields before its first operation loses an interruption that came before it began.
      if (this.#untilYield > 0 || currentOpCount <= 1) return false
      this.#untilYield = 1 + this.#random.below(this.#random.once(4) ? 20 : 400)
      return true
    },
    makeDispatcher: () => this.#dispatcher
  }

  after(millis: number, task: () => void): Timer {
    const timer = { at: this.now + Math.max(0, Math.ceil(millis)), task }
    this.#timers.add(timer)
    return timer
  }

  cancel(timer: Timer | undefined): void {
    if (timer !== undefined) this.#timers.delete(timer)
  }

  get timers(): number {
    return this.#timers.size + this.#intervals.size
  }

  /** Whether a task is ready, apart from the one that runs. */
  get isBusy(): boolean {
    return this.#tasks.length > 0
  }

  /** Time passes while nothing runs, as on a machine that sleeps. */
  jump(millis: number): void {
    this.now += millis
  }

  /** A clock that is off by so many milliseconds. Its monotonic time began earlier, and is right. */
  clock(skew: number): Clock.Clock {
    const monotonic = () => BigInt(this.now + originOf(skew)) * 1_000_000n
    const millis = () => epoch + skew + this.now
    const clock: Clock.Clock = {
      currentTimeMillisUnsafe: millis,
      currentTimeMillis: Effect.sync(millis),
      currentTimeNanosUnsafe: () => BigInt(millis()) * 1_000_000n,
      currentTimeNanos: Effect.sync(() => BigInt(millis()) * 1_000_000n),
      monotonicTimeNanosUnsafe: monotonic,
      monotonicTimeNanos: Effect.sync(monotonic),
      sleep: (duration) => {
        const length = Duration.toMillis(duration)
        if (length <= 0) return Effect.yieldNow
        if (length === Infinity) return Effect.never
        return Effect.callback<undefined>((resume) => {
          const timer = this.after(length, () => resume(Effect.undefined))
          return Effect.sync(() => this.cancel(timer))
        })
      }
    }
    return clock
  }

  /** The clock that is right. */
  readonly wall = this.clock(0)

  /** What every fiber runs with. */
  readonly #context = Context.empty().pipe(
    Context.add(Scheduler.Scheduler, this.scheduler),
    Context.add(CurrentClock, this.wall),
    Context.add(Logger.CurrentLoggers, new Set<never>()),
    Context.add(Metric.FiberRuntimeMetrics, {
      recordFiberStart: () => void (this.fibers += 1),
      recordFiberEnd: () => void (this.fibers -= 1)
    })
  )

  #step(): boolean {
    if (this.#tasks.length === 0) {
      const [first] = this.#timers
      if (first === undefined) return false
      let at = first.at
      for (const timer of this.#timers) if (timer.at < at) at = timer.at
      this.now = Math.max(this.now, at)
      for (const interval of this.#intervals) {
        if (interval.at > this.now) continue
        interval.at = this.now + interval.millis
        this.#tasks.push(interval.task)
      }
      for (const timer of this.#timers) {
        if (timer.at > this.now) continue
        this.#timers.delete(timer)
        this.#tasks.push(timer.task)
      }
    }
    const index = this.#random.below(this.#tasks.length)
    const task = this.#tasks[index] as () => void
    const last = this.#tasks.pop() as () => void
    if (index < this.#tasks.length) this.#tasks[index] = last
    this.ran += 1
    task()
    return true
  }

  /** Runs a program to its end. Stacks of errors cost a tenth of the time. */
  run<A, E>(program: Effect.Effect<A, E>, stackTraceLimit = 0): Exit.Exit<A, E> {
    const limit = Error.stackTraceLimit
    Error.stackTraceLimit = stackTraceLimit
    const real = new Map(globals.map((name) => [name, globalThis[name]]))
    const now = Object.getOwnPropertyDescriptor(performance, "now")
    const timerOf = (millis: number, task: () => void) => Object.assign(this.after(millis, task), { unref: () => {} })
    const cancel = (timer: unknown) => this.cancel(timer as Timer | undefined)
    Object.assign(globalThis, {
      setTimeout: (task: () => void, millis = 0) => timerOf(millis, task),
      clearTimeout: cancel,
      setImmediate: (task: () => void) => void this.#tasks.push(task),
      setInterval: (task: () => void, millis: number) => {
        const interval = Object.assign({ task, millis, at: this.now + millis }, { unref: () => interval })
        this.#intervals.add(interval)
        return interval
      },
      clearInterval: (interval: Interval) => void this.#intervals.delete(interval)
    })
    performance.now = () => this.now
    try {
      const fiber: Fiber.Fiber<A, E> = Effect.runForkWith(this.#context)(program)
      for (;;) {
        const exit = fiber.pollUnsafe()
        if (exit !== undefined) return exit
        if (!this.#step()) return Exit.die(new Error("Everything waits for what is outside of the simulation"))
        if (this.ran > mostTasks) return Exit.die(new Error("The history does not end"))
      }
    } finally {
      Error.stackTraceLimit = limit
      Object.assign(globalThis, Object.fromEntries(real))
      if (now === undefined) Reflect.deleteProperty(performance, "now")
      else Object.defineProperty(performance, "now", now)
    }
  }

  /** Random bytes of a seed. */
  secureRandom(seed: number) {
    const random = new Random(seed)
    return SecureRandom.make((size) => Uint8Array.from({ length: size }, () => random.next() & 0xff))
  }
}
