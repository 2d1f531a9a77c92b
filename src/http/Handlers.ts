import { Context, Effect, Layer, Scope } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../api/Api.ts"
import { credentialBody, credentialListBody } from "../api/credentialBody.ts"
import { Authentication, JsonBody, QueryParameters, ResourcePath } from "../api/Middleware.ts"
import type { Credential } from "../domain/Credential.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { Credentials } from "../port/Credentials.ts"
import { Explanations } from "../port/Explanations.ts"
import { FairQueues } from "./FairQueue.ts"

type Middleware = Authentication | JsonBody | QueryParameters | ResourcePath

const json = { contentType: "application/json" }

const created = (credential: Credential, replayed: boolean) =>
  HttpServerResponse.text(credentialBody(credential), {
    ...json,
    status: 201,
    ...(replayed ? { headers: { "idempotent-replayed": "true" } } : {})
  })

/** How many credentials a page has unless the request says. */
const defaultLimit = 50

const deleted = JSON.stringify({ deleted: true })

const middlewareOf = Context.pick(Authentication, JsonBody, QueryParameters, ResourcePath, Scope.Scope)

/** Builds the group with the middleware alone in its context: every request copies it. */
const withMiddlewareOnly = <A, E>(group: Layer.Layer<A, E, Middleware>): Layer.Layer<A, E, Middleware> =>
  Layer.effectContext(
    Effect.flatMap(Effect.scope, (scope) => Layer.buildWithScope(group, scope)).pipe(
      Effect.updateContext((context: Context.Context<Middleware | Scope.Scope>) => middlewareOf(context))
    )
  )

/** Translates between the contract and the service, nothing else. */
export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const credentials = yield* Credentials
    const { explain } = yield* Explanations
    const { lists, reads, writes } = yield* FairQueues
    const reading = <A, E, R>(operation: Effect.Effect<A, E, R>, queue = reads) =>
      Effect.flatMap(CurrentCaller, ({ account_id }) => queue(account_id, operation))
    const writing = <A, E, R>(operation: Effect.Effect<A, E, R>) =>
      Effect.flatMap(CurrentCaller, ({ account_id }) => writes(account_id, operation))
    const group = HttpApiBuilder.group(Api, "byok", (handlers) =>
      handlers.handleAll({
        create: ({ headers: { "idempotency-key": idempotency_key }, payload }) =>
          Effect.map(writing(credentials.createOnce(payload, idempotency_key)), ({ credential, replayed }) =>
            created(credential, replayed)
          ),
        list: ({ query }) =>
          reading(
            Effect.map(credentials.list({ offset: 0, limit: defaultLimit, ...query }), ({ credentials, total_count }) =>
              HttpServerResponse.text(credentialListBody(credentials, total_count), json)
            ),
            lists
          ),
        plan: ({ payload }) => Effect.map(reading(explain(payload)), (data) => ({ data })),
        get: ({ params }) =>
          Effect.map(credentials.get(params.id), (credential) =>
            HttpServerResponse.text(credentialBody(credential), json)
          ),
        update: ({ params, payload }) =>
          Effect.map(writing(credentials.update(params.id, payload)), (credential) =>
            HttpServerResponse.text(credentialBody(credential), json)
          ),
        delete: ({ params }) =>
          Effect.as(writing(credentials.delete(params.id)), HttpServerResponse.text(deleted, json))
      })
    )
    return withMiddlewareOnly(group)
  })
)
