import { toServerResponse } from "@effect/platform-node/NodeHttpServerRequest"
import type { ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { Duration, Effect, Layer, Redacted } from "effect"
import { type HttpRouter, type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentActor } from "../domain/CurrentCaller.ts"
import { InvalidParams, NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import type { AccountId } from "../domain/Identifiers.ts"
import { type Outcome, outcomeOf } from "../domain/routing/Outcome.ts"
import type { Exclusion, ProviderPlan } from "../domain/routing/Plan.ts"
import { makeReady } from "../http/Health.ts"
import { withJsonBody } from "../http/RequestDecodingLive.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"
import { CurrentDeadline } from "../port/Deadline.ts"
import { MemoryBudget } from "../port/MemoryBudget.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import { workspaceIssue } from "../service/credentials/Ownership.ts"
import { Router } from "../service/routing/Router.ts"
import {
  AccountGone,
  AnotherAttemptOpen,
  DefaultWorkspaceNotEmpty,
  ErasureNotGranted,
  GatewayApi,
  GatewayBody,
  GatewayFailures,
  HashInUse,
  type Outcomes
} from "./GatewayApi.ts"
import { type NextAttempt, OpenRoutes } from "./OpenRoutes.ts"

const timeOf = (at: number | null) => (at === null ? null : new Date(at).toISOString())

/** Written by hand: the key is read from its lease at the last moment. */
const json = (status: number, data: object) =>
  HttpServerResponse.text(JSON.stringify({ data }), { status, contentType: "application/json" })

const attemptOf = (next: NextAttempt | undefined) => {
  if (next === undefined) return null
  const { lease, step } = next.attempt
  const { n: attempt } = next
  if (lease === undefined) {
    return { attempt, step: "shared", provider: step.provider, credential_id: null, label: null, region: null }
  }
  const { credential_id, label, provider, region } = lease.terms
  return { attempt, step: "own", provider, credential_id, label, region, key: lease.text() }
}

const exclusionOf = (exclusion: Exclusion) =>
  exclusion.reason === "parked" ? { ...exclusion, until: timeOf(exclusion.until) } : exclusion

const verdictsOf = ({ credentials, ...rest }: ProviderPlan) => ({
  ...rest,
  credentials: credentials.map((verdict) => ({ ...verdict, exclusions: verdict.exclusions.map(exclusionOf) }))
})

const outcomeNames = {
  Succeeded: "succeeded",
  RateLimited: "rate_limited",
  QuotaExhausted: "quota_exhausted",
  Rejected: "rejected",
  Forbidden: "forbidden",
  UpstreamFailed: "upstream_failed",
  RequestRefused: "request_refused",
  Abandoned: "abandoned"
} as const satisfies Record<Outcome["_tag"], typeof Outcomes.Type>

/** Of each connection, what to do if it breaks before the last answer was read. */
const unread = new WeakMap<Socket, (hadError: boolean) => void>()

/** The client of a connection has read the answers so far, since it sends another request. */
const hasRead = (socket: Socket) => {
  const last = unread.get(socket)
  if (last !== undefined) socket.off("close", last)
}

/** Gives up what an answer hands out, if the answer cannot be written or the system reports that it was not read. */
const ifUnread = (sent: HttpServerRequest.HttpServerRequest) => (giveUp: () => void) => {
  const response = toServerResponse(sent) as ServerResponse
  if (response.destroyed) return giveUp()
  const { socket } = response.req
  const broken = (hadError: boolean) => {
    if (hadError) giveUp()
  }
  hasRead(socket)
  unread.set(socket, broken)
  socket.once("close", broken)
  response.once("close", () => {
    if (!response.writableFinished) giveUp()
  })
}

/** A gateway names any account, so the default workspace is also missing if there is no such account. */
const noDefault = {
  path: ["account_id"],
  message: "must be an account whose default workspace is not deleted, unless workspace_id is given"
}

const routes = HttpApiBuilder.group(
  GatewayApi,
  "routes",
  Effect.fnUntraced(function* (handlers) {
    const { plan } = yield* Router
    const { abandon, open, report } = yield* OpenRoutes
    const unavailable = () => new ServiceUnavailable()
    return handlers.handleAll({
      open: ({ payload: { freshness_ms, workspace_id: given, ...request }, request: sent }) =>
        Effect.gen(function* () {
          const refused = () => InvalidParams.of(given === null ? noDefault : workspaceIssue(given))
          const planning = plan(
            given === null ? request : { ...request, workspace_id: given },
            freshness_ms === 0 ? "now" : Duration.millis(freshness_ms)
          )
          const { expires_at, id, next, planned, retry_at } = yield* Effect.catchTags(
            open(request.account_id, planning, ifUnread(sent)),
            {
              UnknownWorkspace: refused,
              PoolsUnavailable: unavailable
            }
          )
          const providers = planned.providers.map(verdictsOf)
          const times = { expires_at: timeOf(expires_at), retry_at: timeOf(retry_at) }
          return json(201, { route: id, ...times, next: attemptOf(next), providers })
        }),
      report: ({ params: { id, n }, payload: { codes = [], retry_after = null, status } }) =>
        Effect.gen(function* () {
          const now = yield* Effect.clockWith((clock) => Effect.sync(() => clock.currentTimeMillisUnsafe()))
          const answered = { codes: codes.filter((code) => typeof code === "string"), retry_after }
          const outcome =
            status === undefined ? ({ _tag: "Abandoned" } as const) : outcomeOf({ status, ...answered }, now)
          const answer = yield* Effect.catchTags(report(id, n, outcome), {
            AttemptNotOpen: () => new AnotherAttemptOpen(),
            PoolsUnavailable: unavailable
          })
          // The attempt of the answer may have ended since: somebody else reported it, or the route is over.
          if (answer.next?.attempt.lease?.hasEnded === true) return yield* new AnotherAttemptOpen()
          const { next, outcome: first, retry_at } = answer
          return json(200, { outcome: outcomeNames[first._tag], next: attemptOf(next), retry_at: timeOf(retry_at) })
        }),
      abandon: ({ params }) => Effect.as(abandon(params.id), { deleted: true } as const)
    })
  })
)

const dataOf = <A>(data: A) => ({ data })
const notKnown = { NotKnown: () => new NotFound() }
const deleted = { deleted: true } as const

/** SQLSTATE of a statement for which the role lacks a right. */
const notGranted = "42501"

const accounts = HttpApiBuilder.group(
  GatewayApi,
  "accounts",
  Effect.fnUntraced(function* (handlers) {
    const accounts = yield* Accounts
    const workspacesOf = (id: AccountId) => Effect.catchTags(accounts.listWorkspaces(id), notKnown)
    const apiKeysOf = (id: AccountId) => Effect.catchTags(accounts.listApiKeys(id), notKnown)
    return handlers.handleAll({
      create: ({ headers: { "idempotency-key": idempotency_key }, payload: { name } }) =>
        Effect.gen(function* () {
          const { management_key, replayed, ...made } =
            idempotency_key === undefined
              ? { ...(yield* accounts.createAccount(name)), replayed: false }
              : yield* Effect.catchTags(accounts.createAccountOnce(name, idempotency_key), {
                  AccountDeleted: () => new AccountGone()
                })
          const answer = json(201, { ...made, management_key: Redacted.value(management_key) })
          return replayed ? HttpServerResponse.setHeader(answer, "idempotent-replayed", "true") : answer
        }),
      list: ({ query }) => Effect.map(accounts.listPage(query.after), dataOf),
      // As long as it takes, like the command: whoever leaves resumes it by deleting the account again.
      delete: ({ params }) =>
        accounts.deleteAccount(params.id).pipe(
          Effect.provideService(CurrentDeadline, undefined),
          Effect.catchTags(notKnown),
          Effect.catchDefect((defect) =>
            defect instanceof DatabaseFailure && defect.sqlstate === notGranted
              ? Effect.fail(new ErasureNotGranted())
              : Effect.die(defect)
          ),
          Effect.as(deleted)
        ),
      createWorkspace: ({ params, payload }) =>
        Effect.map(Effect.catchTags(accounts.createWorkspace(params.id, payload.name), notKnown), dataOf),
      listWorkspaces: ({ params }) => Effect.map(workspacesOf(params.id), dataOf),
      deleteWorkspace: ({ params: { id, workspace_id } }) =>
        Effect.gen(function* () {
          const own = yield* workspacesOf(id)
          if (!own.some((one) => one.workspace_id === workspace_id)) return yield* new NotFound()
          const conflict = { DefaultWorkspaceInUse: () => new DefaultWorkspaceNotEmpty() }
          yield* Effect.catchTags(accounts.deleteWorkspace(workspace_id), { ...notKnown, ...conflict })
          return deleted
        }),
      createApiKey: ({ params, payload: { hash, ...given } }) =>
        (hash === undefined
          ? Effect.map(accounts.issueApiKey(params.id, given), ({ key, ...made }) =>
              dataOf({ ...made, key: Redacted.value(key) })
            )
          : Effect.map(accounts.importApiKey(params.id, { hash, ...given }), dataOf)
        ).pipe(Effect.catchTags({ ...notKnown, HashTaken: () => new HashInUse() })),
      listApiKeys: ({ params }) => Effect.map(apiKeysOf(params.id), dataOf),
      revokeApiKey: ({ params: { hash, id } }) =>
        Effect.gen(function* () {
          const own = yield* apiKeysOf(id)
          if (!own.some((one) => one.hash === hash)) return yield* new NotFound()
          yield* Effect.catchTags(accounts.revokeApiKey(hash), notKnown)
          return deleted
        })
    })
  })
)

/** The port logs what is not ready. */
const health = HttpApiBuilder.group(
  GatewayApi,
  "health",
  Effect.fnUntraced(function* (handlers) {
    const ready = yield* makeReady(() => Effect.void)
    return handlers.handleAll({ ready: () => ready })
  })
)

const body = Layer.effect(
  GatewayBody,
  Effect.map(MemoryBudget, (budget) => GatewayBody.of((app) => withJsonBody(budget, "gateway", "gateway", app)))
)

const asGateway = Layer.succeed(GatewayFailures, (app) => Effect.provideService(app, CurrentActor, { kind: "gateway" }))

const groups = Layer.mergeAll(routes, accounts, health).pipe(Layer.provide([body, asGateway, OpenRoutes.layer]))

/** The schemas of the contract need no service, which the types of its handlers cannot tell. */
type Needed = Exclude<Layer.Services<typeof groups>, HttpRouter.Request<"Requires", unknown>>

/** Translates between the contract and the services, nothing else. */
export const layer = groups as Layer.Layer<Layer.Success<typeof groups>, never, Needed>
