import { Array as Arr, Duration, Effect, Exit } from "effect"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import type { DatabaseFailure } from "./DatabaseFailure.ts"
import type { Query } from "./Query.ts"

type NonEmpty<A> = Arr.NonEmptyReadonlyArray<A>

/** One query in two forms: for one request, and for many at once with the answers in the order of the requests. */
interface Queries<Asked, Answer> {
  readonly one: (asked: Asked) => Query<Answer>
  readonly many: (asked: NonEmpty<Asked>) => Query<ReadonlyArray<Answer>>
  /** About how many bytes a request adds to a statement, if that can be many. */
  readonly sizeOf?: (asked: Asked) => number
}

/** Makes a function that answers a request, alone or in a batch with others. */
export type Gather = <Asked, Answer>(
  queries: Queries<Asked, Answer>
) => (asked: Asked) => Effect.Effect<Answer, ServiceUnavailable>

interface Options {
  readonly deadline: Duration.Duration
  readonly queue: number
  readonly scrubbed: <A>(query: Query<A>) => Effect.Effect<A, DatabaseFailure>
  /** What a caller gets whose deadline has passed. */
  readonly late: Exit.Exit<never>
}

/** How many statements of one kind are under way at a time; meanwhile the next batch grows. */
const inFlight = 2

/** How many bytes requests may add to one statement: enough for all small ones, and large ones hold nobody up for long. */
const largest = 4 * 1024 * 1024

/** How often deadlines are looked at, in milliseconds. */
const sweep = 50

const unavailable = Exit.fail(new ServiceUnavailable())

/** Failures of a row that say nothing about the others. */
const isOfOneRow = ({ kind, sqlstate = "" }: DatabaseFailure) =>
  kind === "UniqueViolation" || kind === "ConstraintError" || sqlstate.startsWith("22")

/** A caller who waits. Once settled it is let go of, so that nothing that lives longer holds a request. */
interface Waiting<Asked, Answer> {
  readonly asked: Asked
  readonly until: number
  settle: ((exit: Exit.Exit<Answer, ServiceUnavailable>) => void) | undefined
}

/**
 * Collects what is asked during one turn of the event loop, and longer while `inFlight` statements are under way. A
 * batch runs detached from its callers: one who leaves, or whose deadline passes, takes nothing from the others.
 */
export const gatherWith = Effect.fnUntraced(function* ({ deadline, late, queue, scrubbed }: Options) {
  const fork = Effect.runForkWith(yield* Effect.context())
  const patience = Duration.toMillis(deadline)
  const expiries: Array<(now: number) => void> = []
  let waiting = 0
  yield* Effect.acquireRelease(
    Effect.sync(() => setInterval(() => expiries.forEach((expire) => expire(performance.now())), sweep).unref()),
    (timer) => Effect.sync(() => clearInterval(timer))
  )

  const gather: Gather = <Asked, Answer>({ many, one, sizeOf = () => 0 }: Queries<Asked, Answer>) => {
    type Entry = Waiting<Asked, Answer>
    let collected: Array<Entry> = []
    const running: Array<ReadonlyArray<Entry>> = []
    let scheduled = false

    const settle = (entry: Entry, exit: Exit.Exit<Answer, ServiceUnavailable>) => {
      const { settle } = entry
      if (settle === undefined) return
      entry.settle = undefined
      waiting -= 1
      settle(exit)
    }
    expiries.push((now) => {
      for (const entry of [...running.flat(), ...collected]) if (entry.until <= now) settle(entry, late)
    })

    const runOne = (entry: Entry) =>
      Effect.map(Effect.exit(Effect.orDie(scrubbed(one(entry.asked)))), (exit) => settle(entry, exit))
    const runMany = (entries: NonEmpty<Entry>) =>
      Effect.matchEffect(scrubbed(many(Arr.map(entries, ({ asked }) => asked))), {
        onSuccess: (answers) =>
          Effect.sync(() => entries.forEach((entry, index) => settle(entry, Exit.succeed(answers[index] as Answer)))),
        onFailure: (failure) =>
          isOfOneRow(failure)
            ? Effect.forEach(entries, runOne, { concurrency: inFlight, discard: true })
            : Effect.sync(() => entries.forEach((entry) => settle(entry, Exit.die(failure))))
      })

    const start = (entries: ReadonlyArray<Entry>) => {
      running.push(entries)
      const query = Effect.suspend(() =>
        Arr.isReadonlyArrayNonEmpty(entries) && entries.length > 1
          ? runMany(entries)
          : Effect.forEach(entries, runOne, { discard: true })
      )
      fork(query).addObserver((exit) => {
        running.splice(running.indexOf(entries), 1)
        if (Exit.isFailure(exit)) entries.forEach((entry) => settle(entry, Exit.failCause(exit.cause)))
        flush()
      })
    }
    const flush = () => {
      scheduled = false
      while (running.length < inFlight && collected.length > 0) {
        const waited = collected.filter((entry) => entry.settle !== undefined)
        let bytes = 0
        const full = waited.findIndex(({ asked }) => (bytes += sizeOf(asked)) > largest)
        const entries = full < 0 ? waited : waited.slice(0, Math.max(full, 1))
        collected = waited.slice(entries.length)
        if (entries.length > 0) start(entries)
      }
    }

    return (asked: Asked) =>
      Effect.callback<Answer, ServiceUnavailable>((resume) => {
        if (waiting >= queue) return resume(unavailable)
        const entry: Entry = { asked, until: performance.now() + patience, settle: (exit) => resume(exit) }
        waiting += 1
        collected.push(entry)
        if (!scheduled) {
          scheduled = true
          setImmediate(flush)
        }
        return Effect.sync(() => {
          if (entry.settle === undefined) return
          entry.settle = undefined
          waiting -= 1
        })
      })
  }
  return gather
})
