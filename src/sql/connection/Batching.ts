import { Array as Arr, Context, Duration, Effect, Exit, References } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import type { Answer, DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { CurrentDeadline } from "../../runtime/Deadline.ts"
import { beginSpan, beginStatement, endSpan, type OperationSpan } from "./OperationSpan.ts"
import type { PoolMeter } from "./PoolMeter.ts"
import type { Operation, Query } from "./Query.ts"

type NonEmpty<A> = Arr.NonEmptyReadonlyArray<A>

/** The query for one look-up, and the query for several, which returns answers in the order of requests. */
interface Queries<Request, A> {
  readonly operation: Operation
  readonly one: (request: Request) => Query<A>
  readonly many: (requests: NonEmpty<Request>) => Query<ReadonlyArray<A>>
}

/** Makes a function that looks up one thing. Fails if too many wait. */
export type Batch = <Request, A>(queries: Queries<Request, A>) => (request: Request) => Answer<A>

/** The result of one look-up. */
type Result<A> = Exit.Exit<A, ServiceUnavailable | DatabaseFailure>

interface Options {
  readonly deadline: Duration.Duration
  /** How many requests may wait for an answer; further ones are refused. */
  readonly maxWaiting: number
  /** Runs a query with retries, and records its duration. */
  readonly retrying: ReturnType<PoolMeter["timing"]>
  readonly meter: PoolMeter
  /** The result for a caller whose deadline has passed. */
  readonly timedOut: Result<never>
}

/** How many statements of one kind may run at a time, while the next one collects requests. */
const maxInFlight = 2

/** How often deadlines are checked, in milliseconds. */
const sweepInterval = 50

/** A request and its caller. */
interface Waiting<Request, A> {
  readonly request: Request
  /** When the request arrived, and when its deadline passes, in milliseconds of the monotonic clock. */
  readonly arrived: number
  readonly until: number
  /** Resumes the caller. Cleared on use, so that a statement does not retain the caller. */
  resume: ((exit: Result<A>) => void) | undefined
  readonly span: OperationSpan | undefined
}

/**
 * Answers the look-ups of one turn of the event loop by one statement, or of more turns while `maxInFlight` statements
 * run. Invariant: each caller gets its own answer, the statement's failure or its deadline, once; none affects another's.
 * A statement runs detached from its callers. Look-ups that arrive one by one are sent at once.
 */
export const makeBatching = Effect.fnUntraced(function* ({ deadline, maxWaiting, meter, timedOut, retrying }: Options) {
  // Suppresses the client's spans of statements, which the spans of operations replace.
  const fork = Effect.runForkWith(Context.add(yield* Effect.context(), References.MinimumTraceLevel, "None"))
  const longest = Duration.toMillis(deadline)
  /** For each kind of look-up: settles the callers whose deadline has passed. */
  const sweeps: Array<(now: number) => void> = []
  let waiting = 0
  meter.addQueue(() => waiting)
  yield* Effect.acquireRelease(
    Effect.sync(() => setInterval(() => sweeps.forEach((sweep) => sweep(performance.now())), sweepInterval).unref()),
    (timer) => Effect.sync(() => clearInterval(timer))
  )

  const batch: Batch = <Request, A>({ many, one, operation }: Queries<Request, A>) => {
    type Entry = Waiting<Request, A>
    let collected: Array<Entry> = []
    const running = new Set<ReadonlyArray<Entry>>()
    let scheduled = false
    /** Whether the last statement had one request; then the next request is sent at once, unless that one still runs. */
    let wasAlone = false

    const isWaiting = ({ resume }: Entry) => resume !== undefined
    /** Answers a caller, once; does nothing if the caller has left or was answered. */
    const settle = (entry: Entry, exit: Result<A>) => {
      const { resume } = entry
      if (resume === undefined) return
      entry.resume = undefined
      waiting -= 1
      if (entry.span !== undefined) endSpan(entry.span, exit)
      resume(exit)
    }
    sweeps.push((now) => {
      for (const entry of [...Array.from(running).flat(), ...collected]) if (entry.until <= now) settle(entry, timedOut)
    })

    /** Sends one statement and, once it has ended, the requests that waited for it. */
    const start = (entries: NonEmpty<Entry>) => {
      running.add(entries)
      wasAlone = entries.length === 1
      const now = performance.now()
      for (const { arrived } of entries) meter.waited((now - arrived) / 1000)
      meter.batched(operation, entries.length)
      const requests = Arr.map(entries, ({ request }) => request)
      const query = Effect.suspend((): Query<ReadonlyArray<A>> =>
        requests.length > 1 ? many(requests) : Effect.map(one(requests[0]), Arr.of)
      )
      const lastDeadline = () => entries.filter(isWaiting).reduce((last, { until }) => Math.max(last, until), 0)
      const statement = retrying(query, lastDeadline, operation)
      const spans = entries.flatMap(({ span }) => (span === undefined ? [] : [span]))
      const span = beginStatement(spans, entries.length)
      fork(span === undefined ? statement : onEnd(statement, (exit) => endSpan(span, exit))).addObserver((exit) => {
        running.delete(entries)
        entries.forEach((entry, n) => {
          const answer = Exit.map(exit, (answers) => answers[n] as A)
          settle(entry, answer)
        })
        flush()
      })
    }
    /** Sends collected requests while fewer than `maxInFlight` statements run. Drops those already settled. */
    const flush = () => {
      scheduled = false
      if (running.size >= maxInFlight) return
      const entries = collected.filter(isWaiting)
      collected = []
      if (Arr.isReadonlyArrayNonEmpty(entries)) start(entries)
    }

    return (request: Request) =>
      Effect.withFiber((fiber) =>
        Effect.callback<A, ServiceUnavailable | DatabaseFailure>((resume) => {
          const arrived = performance.now()
          const until = Math.min(arrived + longest, fiber.getRef(CurrentDeadline)?.until ?? Number.POSITIVE_INFINITY)
          if (until <= arrived) return resume(timedOut)
          if (waiting >= maxWaiting) {
            meter.refused()
            return resume(Exit.fail(new ServiceUnavailable()))
          }
          const entry: Entry = { request, arrived, until, resume, span: beginSpan(fiber, operation, "internal") }
          waiting += 1
          collected.push(entry)
          if (wasAlone && running.size === 0) flush()
          else if (!scheduled) {
            scheduled = true
            setImmediate(flush)
          }
          return Effect.sync(() => settle(entry, Exit.interrupt()))
        })
      )
  }
  return batch
})
