import { randomUUID } from "node:crypto"
import { Clock, Context, Data, Effect, Layer, type Scope } from "effect"
import { monotonicMillis } from "../../domain/routing/Health.ts"
import { type Outcome, outcomeNames, outcomeOf } from "../../domain/routing/Outcome.ts"
import { credentialOf, isFinal, outcomeAfter, type Past } from "../../domain/routing/Past.ts"
import type { Plan } from "../../domain/routing/Plan.ts"
import { ownKeysOnly, type RoutingRequest } from "../../domain/routing/RoutingRequest.ts"
import { AttemptMac } from "../../port/AttemptMac.ts"
import { CurrentRequestLog } from "../../runtime/RequestLog.ts"
import { decodeAttempt, encodeAttempt, type RecordedAttempt } from "./attemptText.ts"
import type { AttemptOptions, NextAttempt } from "./NextAttempt.ts"
import { Router } from "./Router.ts"
import type { PlanFailure } from "./RouterErrors.ts"
import type { RouterRequest } from "./RouterRequest.ts"

/**
 * Hands out attempts to gateways, and takes back their results. The text of an attempt holds everything that its report
 * and the next attempt need, so any instance takes it, also after a restart. Invariant: a report changes health as of
 * the time at which the upstream answered, so neither repeating nor reordering reports changes what they do together.
 */
export class Attempts extends Context.Service<Attempts>()("byok/Attempts", {
  make: Effect.gen(function* () {
    const { nextAttempt, plan, report: reportKey, synchronize, timeAt } = yield* Router
    const mac = yield* AttemptMac
    const arrivals = makeArrivals(yield* Clock.Clock)

    /** Reads the text of an attempt that was handed out within the hour. */
    const read = Effect.fnUntraced(function* (text: string) {
      const attempt = decodeAttempt(mac, text)
      if (attempt === undefined) return yield* new UnknownAttempt()
      yield* synchronize
      return timeAt() > attempt.handed_out_at + validMillis ? yield* new UnknownAttempt() : attempt
    })

    const record = (recorded: RecordedAttempt, report: Report): Effect.Effect<Outcome> => {
      const { handed_out_at, key, past, provider } = recorded
      const { attempt, body = null, retry_after = null, status, took_ms } = report
      const answered_at =
        took_ms === undefined ? timeAt(arrivals.firstOf(attempt)) : Math.min(handed_out_at + took_ms, timeAt())
      const answered: Outcome =
        status === undefined ? { _tag: "Abandoned" } : outcomeOf({ provider, status, body, retry_after }, answered_at)
      const outcome = outcomeAfter(past, provider, answered)
      const reporting = key === undefined ? Effect.void : reportKey(key, outcome, answered_at)
      return Effect.as(Effect.andThen(logReport(recorded, outcome), reporting), outcome)
    }

    /** Opens the next attempt after the past of a request, and makes its text. */
    const open = Effect.fnUntraced(function* (
      request: RouterRequest,
      past: Past,
      options: AttemptOptions & { readonly request_id: string }
    ) {
      const opening = nextAttempt(request, past, options)
      const next = yield* Effect.catchTag(opening, "AnotherAccount", () => Effect.fail(new UnknownAttempt()))
      yield* logNext(next)
      if (next.attempt === undefined) return { next, text: undefined }
      yield* synchronize
      const { lease, step } = next.attempt
      const text = encodeAttempt(mac, {
        request_id: options.request_id,
        account_id: next.request.account_id,
        api_key_hash: next.request.api_key_hash,
        provider: step.provider,
        key: lease,
        handed_out_at: timeAt(),
        past: next.past
      })
      return { next, text }
    })

    return {
      /**
       * Records the result of a request's last attempt, if any, and opens the next one. Its key is wiped when the scope
       * closes. A final result opens none and asks no database.
       */
      next: Effect.fnUntraced(function* (
        request: RouterRequest,
        { after, ofOneKey = false, request_id = randomUUID(), ...asked }: AttemptCall
      ): Effect.fn.Return<AttemptAnswer, PlanFailure | UnknownAttempt, Scope.Scope> {
        const common = { freshness: "now", keepTrial: true, ...asked } as const
        if (after === undefined) return { outcome: undefined, ...(yield* open(request, [], { ...common, request_id })) }
        const last = yield* read(after.attempt)
        const { account_id, key, past, provider } = last
        if ("account_id" in request && request.account_id !== account_id) return yield* new UnknownAttempt()
        if (ofOneKey && request.api_key_hash !== last.api_key_hash) return yield* new UnknownAttempt()
        const outcome = yield* record(last, after)
        if (isFinal(outcome._tag)) return { outcome, next: undefined, text: undefined }
        const tried = { provider, credential_id: key?.terms.credential_id ?? null, result: outcome._tag }
        const options = { ...common, request_id: last.request_id, account_id }
        return { outcome, ...(yield* open(request, [...past, tried], options)) }
      }),
      /** Records the result of an attempt. Unless it is final, plans its request as if its caller sent it once more. */
      replan: Effect.fnUntraced(function* (
        request: Omit<RoutingRequest, "account_id" | "api_key_hash" | "model" | "targets">,
        reported: Report
      ): Effect.fn.Return<Replanned, PlanFailure | UnknownAttempt> {
        const last = yield* read(reported.attempt)
        const outcome = yield* record(last, reported)
        const { account_id, api_key_hash, key, provider } = last
        if (key === undefined || isFinal(outcome._tag)) return { outcome, plan: undefined, hasOther: false }
        const { credential_id, model } = key.terms
        const targets = [{ provider, endpoint: ownKeysOnly }]
        const planned = yield* plan({ ...request, account_id, api_key_hash, model, targets })
        const [first] = planned.steps
        return { outcome, plan: planned, hasOther: first !== undefined && credentialOf(first) !== credential_id }
      }),
      /** Records the result of an attempt after which no other follows. */
      report: (reported: Report): Effect.Effect<Outcome, UnknownAttempt> =>
        Effect.flatMap(read(reported.attempt), (attempt) => record(attempt, reported))
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** Adds an attempt that is handed out to the access log. */
const logNext = ({ attempt, request }: NextAttempt) =>
  Effect.map(CurrentRequestLog, (log) => {
    if (log === undefined) return
    log.account_id = request.account_id
    if (attempt === undefined) return
    const { provider } = attempt.step
    log.attempt = { provider, credential_id: attempt.lease?.terms.credential_id ?? null }
  })

/** Adds a reported result to the access log. */
const logReport = ({ account_id, key, provider }: RecordedAttempt, { _tag }: Outcome) =>
  Effect.map(CurrentRequestLog, (log) => {
    if (log === undefined) return
    const credential_id = key?.terms.credential_id ?? null
    const reported = { account_id, provider, credential_id, outcome: outcomeNames[_tag] }
    log.reported = [...(log.reported ?? []), reported]
  })

/** The result of an attempt, as its gateway reports it. */
export interface Report {
  /** The text of the attempt. */
  readonly attempt: string
  /** The upstream's status, null if it did not answer; undefined if the attempt was abandoned. */
  readonly status?: number | null
  readonly retry_after?: string | number | null
  /** The start of an error's body. */
  readonly body?: string | null
  /** Milliseconds from the answer of byok to that of the upstream. */
  readonly took_ms?: number
}

interface AttemptCall extends Pick<AttemptOptions, "freshness" | "keepTrial" | "mustSign"> {
  /** The result of the request's last attempt. */
  readonly after?: Report | undefined
  readonly request_id?: string | undefined
  /** Whether the last attempt must be of the API key that the request names. */
  readonly ofOneKey?: boolean
}

/** The outcome of the attempt before, if any; the next attempt, unless that outcome is final; and its text. */
interface AttemptAnswer {
  readonly outcome: Outcome | undefined
  readonly next: NextAttempt | undefined
  readonly text: string | undefined
}

/** The outcome of an attempt, and the new plan of its request, if that may go on. */
interface Replanned {
  readonly outcome: Outcome
  readonly plan: Plan | undefined
  /** Whether the plan begins with another key. */
  readonly hasOther: boolean
}

/** No instance of this database handed out this attempt within the last hour, or it is of another account. */
export class UnknownAttempt extends Data.TaggedError("UnknownAttempt") {}

/** How long the text of an attempt is valid: the database keeps a cooldown for longer. */
const validMillis = 3_600_000

/** Maximum attempts whose first arrival is remembered. */
const maxArrivals = 10_000

/** The MAC of a text in base64url, which names the attempt. A copy, because a substring keeps the whole text in memory. */
const nameOf = (text: string) => Buffer.from(text.slice(0, 22)).toString()

/**
 * Remembers when each attempt was first reported, for gateways that do not say how long the upstream took. Invariant:
 * the last `maxArrivals` reported attempts are remembered; a repeated report of an older one counts from its arrival.
 * Times are in milliseconds of the monotonic clock, which stays as it is when the database first tells its time.
 */
const makeArrivals = (clock: Clock.Clock) => {
  const firsts = new Map<string, number>()
  return {
    firstOf: (attempt: string): number => {
      const name = nameOf(attempt)
      const first = firsts.get(name) ?? monotonicMillis(clock)
      firsts.set(name, first)
      if (firsts.size > maxArrivals) firsts.delete(firsts.keys().next().value as string)
      return first
    }
  }
}
