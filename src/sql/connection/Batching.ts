import { Array as Arr, Cause, Context, Duration, Effect, Exit, References } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { CurrentDeadline } from "../../runtime/Deadline.ts"
import type { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { PoolMeter } from "./PoolMeter.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import { beginSpan, beginStatement, endSpan, type OperationSpan } from "./OperationSpan.ts"
import { deadlock, type Operation, type Query } from "./Query.ts"

type NonEmpty<A> = Arr.NonEmptyReadonlyArray<A>

/** The query for one request, and the query for a batch, which returns answers in the order of requests. */
interface Queries<Request, Answer> {
  readonly operation: Operation
  readonly one: (request: Request) => Query<Answer>
  readonly many: (requests: NonEmpty<Request>) => Query<ReadonlyArray<Answer>>
  /**
   * Estimates how many bytes a request adds to the statement or its answer; left out where they are few. With it, a
   * caller interrupted during the statement ends only after it, because the caller holds memory for these bytes.
   */
  readonly sizeOf?: ((request: Request) => number) | undefined
  /** The lock that a statement takes for the request. Later requests for the same lock wait until it ends. */
  readonly lockOf?: ((request: Request) => string) | undefined
}

/** Makes a function that answers a request, alone or batched. Fails if too many wait; dies with a `DatabaseFailure`. */
export type Batch = <Request, Answer>(
  queries: Queries<Request, Answer>
) => (request: Request) => Effect.Effect<Answer, ServiceUnavailable>

interface Options {
  readonly deadline: Duration.Duration
  /** How many requests may wait for an answer; further ones are refused. */
  readonly maxWaiting: number
  /** Runs a query with retries, and records its duration. */
  readonly retrying: ReturnType<PoolMeter["timing"]>
  readonly meter: PoolMeter
  /** The result for a caller whose deadline has passed. */
  readonly timedOut: Exit.Exit<never>
}

/** How many batches of one kind may run at a time, while the next one grows. */
const maxInFlight = 2

/** How many bytes requests may add to one statement, so that large requests do not delay the others for long. */
const maxBytes = 4 * 1024 * 1024

/**
 * Up to this many locking requests share a statement; of more, half do, but at least this many. While the others run,
 * this process answers the first half. In one statement, the database and this process would be idle in turn.
 */
const splitThreshold = 32

/** How often deadlines are checked, in milliseconds. */
const sweepInterval = 50

const unavailable = Exit.fail(new ServiceUnavailable())

/** SQLSTATEs of a statement that did not get a lock: deadlock, statement timeout, lock timeout. */
const lockFailures = new Set([deadlock, "57014", "55P03"])

/** Whether a single row may have caused the failure, by its value or a lock. */
const isRowFailure = (failure: DatabaseFailure) => failure.isFaultOfValue || lockFailures.has(failure.sqlstate ?? "")

/** A request and its caller. */
interface Waiting<Request, Answer> {
  readonly request: Request
  /** When the request arrived, and when its deadline passes, in milliseconds of the monotonic clock. */
  readonly arrived: number
  readonly until: number
  /** Resumes the caller. Cleared on use, so that a batch does not retain the caller. */
  resume: ((exit: Exit.Exit<Answer, ServiceUnavailable>) => void) | undefined
  isSent: boolean
  /** Ends an interrupted caller once its statement has ended. */
  onEnd: (() => void) | undefined
  readonly lock: string | undefined
  readonly span: OperationSpan | undefined
}

/** The latest deadline of the callers that still wait. */
const lastDeadline = (entries: ReadonlyArray<{ readonly until: number; readonly resume: unknown }>) =>
  entries.reduce((last, { resume, until }) => (resume === undefined ? last : Math.max(last, until)), 0)

/**
 * Batches the requests of one turn of the event loop, or of more turns while `maxInFlight` batches run. Sends requests
 * at once as long as they arrive one by one. A batch runs detached from its callers: a caller that leaves or times out
 * does not affect the others.
 */
export const makeBatching = Effect.fnUntraced(function* ({ deadline, maxWaiting, meter, timedOut, retrying }: Options) {
  // Suppresses the client's spans of statements, which the spans of operations replace.
  const fork = Effect.runForkWith(Context.add(yield* Effect.context(), References.MinimumTraceLevel, "None"))
  const longest = Duration.toMillis(deadline)
  /** For each kind of request: settles the callers whose deadline has passed. */
  const sweeps: Array<(now: number) => void> = []
  /** The locks of running statements, with how many statements take each. */
  const locks = new Map<string, number>()
  /** For each kind of request that takes locks: sends the requests whose locks are free. */
  const lockingFlushes: Array<() => void> = []
  const lock = (name: string) => locks.set(name, (locks.get(name) ?? 0) + 1)
  const unlock = (name: string) => {
    const others = (locks.get(name) ?? 0) - 1
    if (others > 0) locks.set(name, others)
    else locks.delete(name)
  }
  const withLock = <A, E, R>(name: string, statement: Effect.Effect<A, E, R>) =>
    Effect.acquireUseRelease(
      Effect.sync(() => lock(name)),
      () => statement,
      () =>
        Effect.sync(() => {
          unlock(name)
          lockingFlushes.forEach((flush) => flush())
        })
    )
  let waiting = 0
  meter.addQueue(() => waiting)
  yield* Effect.acquireRelease(
    Effect.sync(() => setInterval(() => sweeps.forEach((sweep) => sweep(performance.now())), sweepInterval).unref()),
    (timer) => Effect.sync(() => clearInterval(timer))
  )

  const batch: Batch = <Request, Answer>({ lockOf, many, one, operation, sizeOf }: Queries<Request, Answer>) => {
    type Entry = Waiting<Request, Answer>
    let collected: Array<Entry> = []
    const running: Array<ReadonlyArray<Entry>> = []
    let scheduled = false
    /** Whether the last batch had one request; then the next request is sent at once, unless that batch still runs. */
    let wasAlone = false

    /** Answers a caller, once; does nothing if the caller has left or was answered. */
    const settle = (entry: Entry, exit: Exit.Exit<Answer, ServiceUnavailable>) => {
      const { resume } = entry
      if (resume === undefined) return
      entry.resume = undefined
      waiting -= 1
      if (entry.span !== undefined) endSpan(entry.span, exit)
      resume(exit)
    }
    const traced = <A, E>(entries: ReadonlyArray<Entry>, statement: Effect.Effect<A, E>) => {
      const spans = entries.flatMap(({ span }) => span ?? [])
      const span = beginStatement(spans, entries.length)
      return span === undefined ? statement : onEnd(statement, (exit) => endSpan(span, exit))
    }
    sweeps.push((now) => {
      for (const entry of [...running.flat(), ...collected]) if (entry.until <= now) settle(entry, timedOut)
    })

    const runOne = (entry: Entry) =>
      Effect.matchCause(
        traced(
          [entry],
          retrying(one(entry.request), () => lastDeadline([entry]), operation)
        ),
        {
          onSuccess: (answer) => settle(entry, Exit.succeed(answer)),
          onFailure: (cause) => settle(entry, Exit.die(Cause.squash(cause)))
        }
      )
    const runMany = (entries: NonEmpty<Entry>) =>
      Effect.matchEffect(
        traced(
          entries,
          retrying(many(Arr.map(entries, ({ request }) => request)), () => lastDeadline(entries), operation)
        ),
        {
          onSuccess: (answers) =>
            Effect.sync(() => entries.forEach((entry, index) => settle(entry, Exit.succeed(answers[index] as Answer)))),
          onFailure: (failure) =>
            isRowFailure(failure)
              ? Effect.forEach(entries, runOne, {
                  // Rows that wait for the lock again must not delay the others.
                  concurrency: lockFailures.has(failure.sqlstate ?? "") ? "unbounded" : maxInFlight,
                  discard: true
                })
              : Effect.sync(() => entries.forEach((entry) => settle(entry, Exit.die(failure))))
        }
      )

    /** Sends a batch and, once it has ended, the requests that waited for it. */
    const start = (entries: NonEmpty<Entry>) => {
      running.push(entries)
      for (const entry of entries) {
        entry.isSent = true
        if (entry.lock !== undefined) lock(entry.lock)
      }
      wasAlone = entries.length === 1
      const now = performance.now()
      for (const { arrived } of entries) meter.waited((now - arrived) / 1000)
      meter.batched(operation, entries.length)
      const query = Effect.suspend(() => (entries.length > 1 ? runMany(entries) : runOne(entries[0])))
      fork(query).addObserver((exit) => {
        running.splice(running.indexOf(entries), 1)
        for (const entry of entries) {
          if (Exit.isFailure(exit)) settle(entry, Exit.failCause(exit.cause))
          entry.onEnd?.()
        }
        if (lockOf === undefined) return flush()
        for (const entry of entries) if (entry.lock !== undefined) unlock(entry.lock)
        lockingFlushes.forEach((flush) => flush())
      })
    }
    /** Sends collected requests while fewer than `maxInFlight` batches run. Drops those already settled. */
    const flush = () => {
      scheduled = false
      while (running.length < maxInFlight && collected.length > 0) {
        const pending = collected.filter((entry) => entry.resume !== undefined)
        const free = locks.size === 0 ? pending : pending.filter(({ lock }) => lock === undefined || !locks.has(lock))
        let bytes = 0
        const indexOfFirstBeyond = free.findIndex(({ request }) => (bytes += sizeOf?.(request) ?? 0) > maxBytes)
        // The first request is sent however large it is.
        const fitting = indexOfFirstBeyond < 0 ? free : free.slice(0, Math.max(indexOfFirstBeyond, 1))
        const batchSize =
          lockOf === undefined ? fitting.length : Math.max(splitThreshold, Math.ceil(fitting.length / 2))
        const entries = fitting.slice(0, batchSize)
        const started = new Set(entries)
        collected = pending.filter((entry) => !started.has(entry))
        if (!Arr.isReadonlyArrayNonEmpty(entries)) return
        start(entries)
      }
    }
    if (lockOf !== undefined) lockingFlushes.push(flush)

    return (request: Request) =>
      Effect.withFiber((fiber) =>
        Effect.callback<Answer, ServiceUnavailable>((resume) => {
          const arrived = performance.now()
          const until = Math.min(arrived + longest, fiber.getRef(CurrentDeadline)?.until ?? Number.POSITIVE_INFINITY)
          if (until <= arrived) return resume(timedOut)
          if (waiting >= maxWaiting) {
            meter.refused()
            return resume(unavailable)
          }
          const span = beginSpan(fiber, operation, "internal")
          const lock = lockOf?.(request)
          const entry: Entry = { request, arrived, until, lock, span, resume, isSent: false, onEnd: undefined }
          waiting += 1
          collected.push(entry)
          if (wasAlone && running.length === 0) flush()
          else if (!scheduled) {
            scheduled = true
            setImmediate(flush)
          }
          return Effect.suspend(() => {
            if (entry.resume === undefined) return Effect.void
            settle(entry, Exit.interrupt())
            if (!entry.isSent || sizeOf === undefined) return Effect.void
            return Effect.callback((resume) => {
              entry.onEnd = () => resume(Effect.void)
            })
          })
        })
      )
  }
  return { batch, withLock }
})
