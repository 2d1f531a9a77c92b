import { toServerResponse } from "@effect/platform-node/NodeHttpServerRequest"
import type { ServerResponse } from "node:http"
import { Duration, Effect, Layer, Redacted, Schema } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { NotFound } from "../domain/Errors.ts"
import { AccountId } from "../domain/Identifiers.ts"
import { CurrentPrincipal } from "../domain/Principal.ts"
import { withDefects } from "../http/databaseDefects.ts"
import { group, makeOperations } from "../http/Handlers.ts"
import { makeReady } from "../http/Health.ts"
import { withJsonBody } from "../http/RequestDecodingLive.ts"
import { CurrentDeadline } from "../runtime/Deadline.ts"
import { Events } from "../port/Events.ts"
import { RequestQueues } from "../runtime/FairQueue.ts"
import { MemoryBudget } from "../runtime/MemoryBudget.ts"
import { Draining } from "../port/Readiness.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import { Links } from "../service/links/Links.ts"
import { GatewayBody } from "../contract/attempts.ts"
import {
  AccountCaller,
  AccountGone,
  DefaultWorkspaceNotEmpty,
  ErasureNotGranted,
  GatewayApi,
  GatewayFailures,
  HashInUse
} from "../contract/GatewayApi.ts"
import { Attempts } from "../service/routing/Attempts.ts"
import { makeAttempts } from "./makeAttempts.ts"

const json = (body: string, status = 200) => HttpServerResponse.text(body, { status, contentType: "application/json" })

const envelope = <A>(data: A) => ({ data })
const asNotFound = { NotKnown: () => new NotFound() }
const deleted = { deleted: true } as const

const attempts = group(
  GatewayApi,
  "attempts",
  Effect.fnUntraced(function* (handlers) {
    const { next, report } = yield* makeAttempts
    return handlers.handleAll({
      next: ({ payload, request }) =>
        Effect.map(next(payload, toServerResponse(request) as ServerResponse), (body) => json(body)),
      report: ({ payload }) => Effect.map(report(payload.reports), (body) => json(body))
    })
  })
)

/** SQLSTATE of a missing permission. */
const insufficientPrivilege = "42501"

const accounts = group(
  GatewayApi,
  "accounts",
  Effect.fnUntraced(function* (handlers) {
    const { deleteAccount, ...services } = yield* Accounts
    const accounts = withDefects(services)
    return handlers.handleAll({
      create: Effect.fnUntraced(function* ({ headers: { "idempotency-key": idempotency_key }, payload: { name } }) {
        const { account_id, management_key, replayed, workspace_id, ...rest } =
          idempotency_key === undefined
            ? { ...(yield* accounts.createAccount(name)), replayed: false }
            : yield* Effect.catchTags(accounts.createAccountOnce(name, idempotency_key), {
                AccountDeleted: () => new AccountGone()
              })
        const data = { account_id, workspace_id, management_key: Redacted.value(management_key), ...rest }
        const response = json(JSON.stringify(envelope(data)), 201)
        return replayed ? HttpServerResponse.setHeader(response, "idempotent-replayed", "true") : response
      }),
      list: ({ query }) => Effect.map(accounts.listAccounts(query.after), envelope),
      // Has no deadline. A disconnect interrupts the deletion; a repeated request resumes it.
      delete: ({ params }) =>
        deleteAccount(params.account_id).pipe(
          Effect.provideService(CurrentDeadline, undefined),
          Effect.catchTags({
            ...asNotFound,
            DatabaseFailure: (failure) =>
              failure.sqlstate === insufficientPrivilege ? Effect.fail(new ErasureNotGranted()) : Effect.die(failure)
          }),
          Effect.as(deleted)
        ),
      createWorkspace: ({ params, payload }) =>
        Effect.map(Effect.catchTags(accounts.createWorkspace(params.account_id, payload.name), asNotFound), envelope),
      listWorkspaces: ({ params, query }) =>
        Effect.map(Effect.catchTags(accounts.listWorkspaces(params.account_id, query.after), asNotFound), envelope),
      deleteWorkspace: ({ params: { account_id, workspace_id } }) => {
        const conflict = { DefaultWorkspaceInUse: () => new DefaultWorkspaceNotEmpty() }
        return Effect.as(
          Effect.catchTags(accounts.deleteWorkspace(workspace_id, account_id), { ...asNotFound, ...conflict }),
          deleted
        )
      },
      createApiKey: ({ params, payload: { hash, ...input } }) =>
        (hash === undefined
          ? Effect.map(accounts.issueApiKey(params.account_id, input), ({ key, ...rest }) =>
              envelope({ ...rest, key: Redacted.value(key) })
            )
          : Effect.map(accounts.importApiKey(params.account_id, { hash, ...input }), envelope)
        ).pipe(Effect.catchTags({ ...asNotFound, HashTaken: () => new HashInUse() })),
      listApiKeys: ({ params, query }) =>
        Effect.map(Effect.catchTags(accounts.listApiKeys(params.account_id, query.after), asNotFound), envelope),
      revokeApiKey: ({ params: { account_id, hash } }) =>
        Effect.as(Effect.catchTags(accounts.revokeApiKey(hash, account_id), asNotFound), deleted)
    })
  })
)

/** Answers whether the service is ready. Logs no changes, because the health check of the tenants' API does. */
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
    const { create, list, revoke } = withDefects(yield* Links)
    return handlers.handleAll({
      create: ({ params, payload }) =>
        Effect.map(Effect.catchTags(create(params.account_id, payload), asNotFound), ({ url, ...rest }) =>
          envelope({ ...rest, url: Redacted.value(url) })
        ),
      list: ({ params }) => Effect.map(list(params.account_id), envelope),
      revoke: ({ params: { account_id, link_id } }) =>
        Effect.as(Effect.catchTags(revoke(account_id, link_id), asNotFound), deleted)
    })
  })
)

/** How often a wait for events checks whether the service is stopping, in milliseconds. */
const drainCheckInterval = 500

const events = group(
  GatewayApi,
  "events",
  Effect.fnUntraced(function* (handlers) {
    const { next } = withDefects(yield* Events)
    const isDraining = yield* Draining
    const untilDraining = Effect.sleep(drainCheckInterval).pipe(Effect.repeat({ until: isDraining }))
    return handlers.handleAll({
      list: ({ query: { after = 0, limit = 50, wait = 0 } }) =>
        next(after, limit, Duration.seconds(wait)).pipe(
          Effect.raceFirst(Effect.as(untilDraining, { events: [], last_seq: after })),
          // A wait may outlast the request's deadline; without one, each query has its own limit.
          Effect.provideService(CurrentDeadline, undefined),
          Effect.map(({ events: data, last_seq }) => HttpServerResponse.jsonUnsafe({ data, last_seq }))
        )
    })
  })
)

const decodeAccountId = Schema.decodeUnknownEffect(AccountId)

/** Makes the gateway act for the account in the path; fails with `NotFound` if that does not exist. */
const accountCaller = Layer.effect(
  AccountCaller,
  Effect.map(Effect.map(Accounts, withDefects), ({ requireAccount }) =>
    AccountCaller.of(
      Effect.fnUntraced(function* (app) {
        const { params } = yield* HttpRouter.RouteContext
        const account_id = yield* Effect.mapError(decodeAccountId(params["account_id"]), () => new NotFound())
        yield* Effect.catchTags(requireAccount(account_id), asNotFound)
        return yield* Effect.provideService(app, CurrentPrincipal, { kind: "gateway", account_id })
      })
    )
  )
)

const credentials = group(GatewayApi, "credentials", (handlers) =>
  Effect.map(makeOperations, (operations) => handlers.handleAll(operations))
)

/** Reads JSON bodies. Their memory counts for the gateway, not for an account. */
const bodyDecoding = Layer.effect(
  GatewayBody,
  Effect.map(MemoryBudget, (budget) => GatewayBody.of((app) => withJsonBody(budget, "gateway", "gateway", app)))
)

/** Does nothing: the middleware only declares the errors of every call. */
const declaredFailures = Layer.succeed(GatewayFailures, (app) => app)

const groups = Layer.mergeAll(attempts, accounts, links, events, credentials, health).pipe(
  Layer.provide([bodyDecoding, declaredFailures, accountCaller, RequestQueues.layer]),
  Layer.provide(Attempts.layer)
)

/** The services that the handlers need. Excludes one that their types list, but the contract's schemas do not use. */
type Requirements = Exclude<Layer.Services<typeof groups>, HttpRouter.Request<"Requires", unknown>>

/** Handles every operation of `GatewayApi`: attempts, accounts, links, events, credentials and health. */
export const layer = groups as Layer.Layer<Layer.Success<typeof groups>, never, Requirements>
