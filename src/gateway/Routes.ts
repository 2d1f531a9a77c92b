import type { ServerResponse } from "node:http"
import { Clock, Duration, Effect, Exit } from "effect"
import { InvalidParams, type NotFound, ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import { decoderOf } from "../domain/checkInput.ts"
import { type Outcome, outcomeNames, outcomeOf } from "../domain/routing/Outcome.ts"
import type { Exclusion, ProviderPlan } from "../domain/routing/Plan.ts"
import { whenLost } from "../http/Connection.ts"
import { hashApiKey } from "../runtime/ApiKey.ts"
import { MemoryBudget } from "../runtime/MemoryBudget.ts"
import { onEnd } from "../runtime/onEnd.ts"
import { workspaceIssue } from "../service/credentials/Ownership.ts"
import type { PlannedRequest } from "../service/routing/PlannedRequest.ts"
import { Router } from "../service/routing/Router.ts"
import { UnknownApiKey } from "../service/routing/RouterErrors.ts"
import { TokensOnly } from "../service/tokens/Tokens.ts"
import { AnotherAttemptOpen, type NewRoute, NotForRouting, type Report, RouteReport } from "../contract/GatewayApi.ts"
import { type NextAttempt, OpenRoutes } from "./OpenRoutes.ts"

/** Makes the operations that open a route and report an attempt: from decoded requests to answers in JSON. */
export const makeRoutes = Effect.gen(function* () {
  const { plan, planForKey, verdicts } = yield* Router
  const { open, report } = yield* OpenRoutes
  const { admit } = yield* MemoryBudget
  const clock = yield* Clock.Clock
  const tokensOnly = yield* TokensOnly
  /** Converts a report to an outcome and records it; opens the next attempt if the route `continues`. */
  const record = (id: string, n: number, reported: typeof Report.Type, continues: boolean) => {
    const { codes = [], retry_after = null, status } = reported
    const answer = { codes: codes.filter((code) => typeof code === "string"), retry_after }
    const outcome: Outcome =
      status === undefined ? { _tag: "Abandoned" } : outcomeOf({ status, ...answer }, clock.currentTimeMillisUnsafe())
    return Effect.mapError(report(id, n, outcome, continues), (error) => {
      if (error._tag === "AttemptNotOpen") return new AnotherAttemptOpen()
      return error._tag === "PoolsUnavailable" ? new ServiceUnavailable() : error
    })
  }
  /** Records a report enclosed in a request to open a route; ends the route reported on. Returns null or the error. */
  const recordEnclosed = (input: unknown) => {
    const recording = Effect.flatMap(decodeReport(input), ({ attempt, route, ...report }) =>
      record(route, attempt, report, false)
    )
    return Effect.match(recording, { onSuccess: () => null, onFailure: ({ error }) => ({ error }) })
  }
  /** Encodes the plan's verdict on each credential. Reserves memory for the text until the response closes. */
  const encodeVerdicts = Effect.fnUntraced(function* (planned: PlannedRequest, response: ServerResponse) {
    const bytes = verdictBytes * planned.members
    const reservation = yield* admit(planned.request.account_id, "gateway", bytes)
    const encoding = verdicts(planned, (providers) => JSON.stringify(providers.map(verdictsJson)))
    return yield* onEnd(Effect.interruptible(encoding), (exit) => {
      if (Exit.isFailure(exit) || response.destroyed) return reservation.release()
      reservation.shrink(unsentBytesPerCharacter * exit.value.length)
      response.once("close", () => reservation.release())
    })
  }, Effect.uninterruptible)
  /** Records the enclosed reports and then opens a route, so that the reports count for its plan. */
  const openPlanned = Effect.fnUntraced(function* <E>(
    planning: Effect.Effect<PlannedRequest, E>,
    { explain, reports }: Pick<typeof NewRoute.Type, "explain" | "reports">,
    response: ServerResponse
  ) {
    const reportResults = reports.length === 0 ? {} : { reports: yield* Effect.forEach(reports, recordEnclosed) }
    let verdictsText: string | undefined
    const planWithVerdicts = Effect.tap(planning, (planned) =>
      explain || planned.isEmpty
        ? Effect.map(encodeVerdicts(planned, response), (encoded) => void (verdictsText = encoded))
        : Effect.void
    )
    const { expires_at, id, next, planned, retry_at } = yield* open(planWithVerdicts, (abandon) =>
      whenLost(response, abandon)
    )
    const times = { expires_at: isoTime(expires_at), retry_at: isoTime(retry_at) }
    // Without an attempt, the verdicts say why.
    if (next === undefined) verdictsText ??= yield* encodeVerdicts(planned, response)
    const answer = jsonResponse(201, { route: id, ...times, next: attemptJson(next), ...reportResults })
    // Appends the encoded verdicts to the object `data`, without encoding them again.
    return verdictsText === undefined
      ? answer
      : { ...answer, body: `${answer.body.slice(0, -2)},"providers":${verdictsText}}}` }
  })
  return {
    open: (
      { account_id, api_key, explain, freshness_ms, reports, workspace_id: requested, ...rest }: typeof NewRoute.Type,
      response: ServerResponse
    ): Effect.Effect<RouteResponse, InvalidParams | Unauthorized | NotForRouting | ServiceUnavailable> => {
      if (tokensOnly && rest.keys === "as_stored") return Effect.fail(tokensRequired)
      const api_key_hash = api_key === undefined ? rest.api_key_hash : hashApiKey(api_key)
      const request = { ...rest, api_key_hash, ...(requested === null ? {} : { workspace_id: requested }) }
      const freshness = freshness_ms === 0 ? "now" : Duration.millis(freshness_ms)
      const planning: ReturnType<typeof plan> =
        account_id !== undefined
          ? plan({ ...request, account_id }, freshness)
          : api_key_hash === null
            ? Effect.fail(new UnknownApiKey())
            : planForKey({ ...request, api_key_hash }, freshness)
      const checkedPlan =
        request.credential_id === undefined
          ? planning
          : Effect.filterOrFail(
              planning,
              ({ providers }) => providers.some(hasCredentials),
              () => credentialNotTargeted
            )
      return Effect.mapError(openPlanned(checkedPlan, { explain, reports }, response), (error) => {
        if (error._tag === "UnknownApiKey") return Unauthorized.invalid()
        if (error._tag === "ApiKeyMayNotRoute") return new NotForRouting()
        if (error._tag === "UnknownWorkspace")
          return InvalidParams.of(requested === null ? noDefaultWorkspace : workspaceIssue(requested))
        return error._tag === "PoolsUnavailable" ? new ServiceUnavailable() : error
      })
    },
    report: (
      id: string,
      n: number,
      reported: typeof Report.Type
    ): Effect.Effect<RouteResponse, AnotherAttemptOpen | NotFound | ServiceUnavailable> =>
      Effect.flatMap(
        record(id, n, reported, true),
        ({ next, outcome, retry_at }): Effect.Effect<RouteResponse, AnotherAttemptOpen> =>
          // The next attempt may have ended meanwhile, by another report or with its route.
          next?.attempt.lease?.hasEnded === true
            ? Effect.fail(new AnotherAttemptOpen())
            : Effect.succeed(
                jsonResponse(200, {
                  outcome: outcomeNames[outcome._tag],
                  next: attemptJson(next),
                  retry_at: isoTime(retry_at)
                })
              )
      )
  }
})

/** An answer with its body as JSON, which includes the provider key of the next attempt, unless its step is shared. */
export interface RouteResponse {
  readonly status: 200 | 201
  readonly body: string
}

const isoTime = (at: number | null) => (at === null ? null : new Date(at).toISOString())

const attemptJson = (next: NextAttempt | undefined) => {
  if (next === undefined) return null
  const { lease, step } = next.attempt
  const { n: attempt } = next
  if (lease === undefined) {
    return { attempt, step: "shared", provider: step.provider, credential_id: null, label: null, region: null }
  }
  const { credential_id, keys, label, provider, region } = lease.terms
  const { token } = lease
  const keyForm = {
    key_kind: token === undefined ? "stored" : "token",
    key_expires_at: isoTime(token?.expires_at ?? null),
    cloud: token?.cloud ?? null
  }
  const ownAttempt = { attempt, step: "own", provider, credential_id, label, region, key: lease.text() }
  return keys === "tokens" ? { ...ownAttempt, ...keyForm } : ownAttempt
}

const exclusionJson = (exclusion: Exclusion) =>
  exclusion.reason === "parked" ? { ...exclusion, until: isoTime(exclusion.until) } : exclusion

const verdictsJson = ({ credentials, ...rest }: ProviderPlan) => ({
  ...rest,
  credentials: credentials.map((verdict) => ({ ...verdict, exclusions: verdict.exclusions.map(exclusionJson) }))
})

/** The issue of an account without a default workspace, such as an unknown account. */
const noDefaultWorkspace = {
  path: ["account_id"],
  message: "must be an account whose default workspace is not deleted, unless workspace_id is given"
}

const tokensRequired = InvalidParams.of({
  path: ["keys"],
  message: "must be tokens: TOKENS_ONLY lets no other form out"
})

const credentialNotTargeted = InvalidParams.of({
  path: ["credential_id"],
  message: "must be a credential of the workspace, and its provider one of targets"
})

const jsonResponse = (status: RouteResponse["status"], data: object): RouteResponse => ({
  status,
  body: JSON.stringify({ data })
})

/** Approximate memory of the verdict on one credential while verdicts are encoded, in bytes. */
const verdictBytes = 1000

/** Memory for each character of encoded verdicts until they are sent, in bytes. */
const unsentBytesPerCharacter = 4

/** Whether the plan of a provider has credentials. If the request names one, the plan has no other. */
const hasCredentials = ({ credentials }: ProviderPlan) => credentials.length > 0

const decodeReport = decoderOf(RouteReport, { onExcessProperty: "error" })
