import { toServerResponse } from "@effect/platform-node/NodeHttpServerRequest"
import type { ServerResponse } from "node:http"
import { Duration, Effect, Layer, Redacted, Schema } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { NotFound } from "../domain/Errors.ts"
import { AccountId } from "../domain/Identifiers.ts"
import { CurrentPrincipal } from "../domain/Principal.ts"
import { group, makeOperations } from "../http/Handlers.ts"
import { makeReady } from "../http/Health.ts"
import { withJsonBody } from "../http/RequestDecodingLive.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"
import { CurrentDeadline } from "../runtime/Deadline.ts"
import { Events } from "../port/Events.ts"
import { RequestQueues } from "../runtime/FairQueue.ts"
import { MemoryBudget } from "../runtime/MemoryBudget.ts"
import { Draining } from "../port/Readiness.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import { Links } from "../service/links/Links.ts"
import {
  AccountCaller,
  AccountGone,
  DefaultWorkspaceNotEmpty,
  ErasureNotGranted,
  GatewayApi,
  GatewayBody,
  GatewayFailures,
  HashInUse
} from "../contract/GatewayApi.ts"
import { OpenRoutes } from "./OpenRoutes.ts"
import { type RouteResponse, Routes } from "./Routes.ts"

const json = ({ body, status }: RouteResponse) =>
  HttpServerResponse.text(body, { status, contentType: "application/json" })

const routes = group(
  GatewayApi,
  "routes",
  Effect.fnUntraced(function* (handlers) {
    const { abandon } = yield* OpenRoutes
    const { open, report } = yield* Routes
    return handlers.handleAll({
      open: ({ payload, request }) => Effect.map(open(payload, toServerResponse(request) as ServerResponse), json),
      report: ({ params: { id, n }, payload }) => Effect.map(report(id, n, payload), json),
      abandon: ({ params }) => Effect.as(abandon(params.id), { deleted: true } as const)
    })
  })
)

const dataOf = <A>(data: A) => ({ data })
const notKnown = { NotKnown: () => new NotFound() }
const deleted = { deleted: true } as const

/** SQLSTATE of a missing right. */
const notGranted = "42501"

const accounts = group(
  GatewayApi,
  "accounts",
  Effect.fnUntraced(function* (handlers) {
    const accounts = yield* Accounts
    const workspacesOf = (id: AccountId) => Effect.catchTags(accounts.listWorkspaces(id), notKnown)
    const apiKeysOf = (id: AccountId) => Effect.catchTags(accounts.listApiKeys(id), notKnown)
    return handlers.handleAll({
      create: Effect.fnUntraced(function* ({ headers: { "idempotency-key": idempotency_key }, payload: { name } }) {
        const { account_id, management_key, replayed, workspace_id, ...rest } =
          idempotency_key === undefined
            ? { ...(yield* accounts.createAccount(name)), replayed: false }
            : yield* Effect.catchTags(accounts.createAccountOnce(name, idempotency_key), {
                AccountDeleted: () => new AccountGone()
              })
        const data = { account_id, workspace_id, management_key: Redacted.value(management_key), ...rest }
        const answer = json({ status: 201, body: JSON.stringify({ data }) })
        return replayed ? HttpServerResponse.setHeader(answer, "idempotent-replayed", "true") : answer
      }),
      list: ({ query }) => Effect.map(accounts.listPage(query.after), dataOf),
      // Without a deadline. After a disconnect, deleting the account again resumes.
      delete: ({ params }) =>
        accounts.deleteAccount(params.account_id).pipe(
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
        Effect.map(Effect.catchTags(accounts.createWorkspace(params.account_id, payload.name), notKnown), dataOf),
      listWorkspaces: ({ params }) => Effect.map(workspacesOf(params.account_id), dataOf),
      deleteWorkspace: Effect.fnUntraced(function* ({ params: { account_id, workspace_id } }) {
        const workspaces = yield* workspacesOf(account_id)
        if (!workspaces.some((one) => one.workspace_id === workspace_id)) return yield* new NotFound()
        const conflict = { DefaultWorkspaceInUse: () => new DefaultWorkspaceNotEmpty() }
        yield* Effect.catchTags(accounts.deleteWorkspace(workspace_id), { ...notKnown, ...conflict })
        return deleted
      }),
      createApiKey: ({ params, payload: { hash, ...input } }) =>
        (hash === undefined
          ? Effect.map(accounts.issueApiKey(params.account_id, input), ({ key, ...rest }) =>
              dataOf({ ...rest, key: Redacted.value(key) })
            )
          : Effect.map(accounts.importApiKey(params.account_id, { hash, ...input }), dataOf)
        ).pipe(Effect.catchTags({ ...notKnown, HashTaken: () => new HashInUse() })),
      listApiKeys: ({ params }) => Effect.map(apiKeysOf(params.account_id), dataOf),
      revokeApiKey: Effect.fnUntraced(function* ({ params: { hash, account_id } }) {
        const apiKeys = yield* apiKeysOf(account_id)
        if (!apiKeys.some((one) => one.hash === hash)) return yield* new NotFound()
        yield* Effect.catchTags(accounts.revokeApiKey(hash), notKnown)
        return deleted
      })
    })
  })
)

/** Does not log problems: the port's own check does. */
const health = group(
  GatewayApi,
  "health",
  Effect.fnUntraced(function* (handlers) {
    const ready = yield* makeReady(() => Effect.void)
    return handlers.handleAll({ ready: () => ready })
  })
)

const links = group(
  GatewayApi,
  "links",
  Effect.fnUntraced(function* (handlers) {
    const { create, list, revoke } = yield* Links
    return handlers.handleAll({
      create: ({ params, payload }) =>
        Effect.map(Effect.catchTags(create(params.account_id, payload), notKnown), ({ url, ...rest }) =>
          dataOf({ ...rest, url: Redacted.value(url) })
        ),
      list: ({ params }) => Effect.map(list(params.account_id), dataOf),
      revoke: ({ params: { account_id, link_id } }) =>
        Effect.as(Effect.catchTags(revoke(account_id, link_id), notKnown), deleted)
    })
  })
)

/** Interval at which a wait for events checks for shutdown, in milliseconds. */
const drainInterval = 500

const events = group(
  GatewayApi,
  "events",
  Effect.fnUntraced(function* (handlers) {
    const { next } = yield* Events
    const isDraining = yield* Draining
    const untilDrained = Effect.sleep(drainInterval).pipe(Effect.repeat({ until: isDraining }))
    return handlers.handleAll({
      list: ({ query: { after = 0, limit = 50, wait = 0 } }) =>
        next(after, limit, Duration.seconds(wait)).pipe(
          Effect.raceFirst(Effect.as(untilDrained, { events: [], last_seq: after })),
          // The wait must not use up the deadline of queries.
          Effect.provideService(CurrentDeadline, undefined),
          Effect.map(({ events: data, last_seq }) => HttpServerResponse.jsonUnsafe({ data, last_seq }))
        )
    })
  })
)

const decodeAccountId = Schema.decodeUnknownEffect(AccountId)

const accountCaller = Layer.effect(
  AccountCaller,
  Effect.map(Accounts, ({ listWorkspaces }) =>
    AccountCaller.of(
      Effect.fnUntraced(function* (app) {
        const { params } = yield* HttpRouter.RouteContext
        const account_id = yield* Effect.mapError(decodeAccountId(params["account_id"]), () => new NotFound())
        yield* Effect.catchTags(listWorkspaces(account_id), notKnown)
        return yield* Effect.provideService(app, CurrentPrincipal, { kind: "gateway", account_id })
      })
    )
  )
)

const credentials = group(GatewayApi, "credentials", (handlers) =>
  Effect.map(makeOperations, (operations) => handlers.handleAll(operations))
)

const body = Layer.effect(
  GatewayBody,
  Effect.map(MemoryBudget, (budget) => GatewayBody.of((app) => withJsonBody(budget, "gateway", "gateway", app)))
)

/** Only declares errors. */
const failures = Layer.succeed(GatewayFailures, (app) => app)

const groups = Layer.mergeAll(routes, accounts, links, events, credentials, health).pipe(
  Layer.provide([body, failures, accountCaller, RequestQueues.layer]),
  Layer.provideMerge(Routes.layer),
  Layer.provide(OpenRoutes.layer)
)

/** The contract's schemas need no service, which the handlers' types do not show. */
type Needed = Exclude<Layer.Services<typeof groups>, HttpRouter.Request<"Requires", unknown>>

export const layer = groups as Layer.Layer<Layer.Success<typeof groups>, never, Needed>
