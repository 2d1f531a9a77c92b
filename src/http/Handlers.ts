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
import { RequestQueues } from "../port/FairQueue.ts"

type Middleware = Authentication | JsonBody | QueryParameters | ResourcePath

const json = (body: string, options: HttpServerResponse.Options.WithContentType = {}) =>
  HttpServerResponse.text(body, { contentType: "application/json", ...options })

const single = (credential: Credential) => json(credentialBody(credential))

/** How many credentials a page has unless the request says. */
const defaultLimit = 50

const deleted = json(JSON.stringify({ deleted: true }))

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
    const { explain, status } = yield* Explanations
    const { lists, reads, writes } = yield* RequestQueues
    const inQueue =
      (queue: typeof reads) =>
      <A, E, R>(operation: Effect.Effect<A, E, R>) =>
        Effect.flatMap(CurrentCaller, ({ account_id }) => queue(account_id, operation))
    const [listing, reading, writing] = [inQueue(lists), inQueue(reads), inQueue(writes)]
    const group = HttpApiBuilder.group(Api, "byok", (handlers) =>
      handlers.handleAll({
        create: ({ headers: { "idempotency-key": idempotency_key }, payload }) =>
          Effect.map(writing(credentials.create(payload, idempotency_key)), ({ credential, replayed }) =>
            json(credentialBody(credential), {
              status: 201,
              headers: replayed ? { "idempotent-replayed": "true" } : {}
            })
          ),
        list: ({ query }) =>
          listing(
            Effect.map(credentials.list({ offset: 0, limit: defaultLimit, ...query }), ({ credentials, total_count }) =>
              json(credentialListBody(credentials, total_count))
            )
          ),
        plan: ({ payload }) => Effect.map(reading(explain(payload)), (data) => ({ data })),
        get: ({ params }) => Effect.map(credentials.get(params.id), single),
        status: ({ params }) => Effect.map(reading(status(params.id)), (data) => ({ data })),
        update: ({ params, payload }) => Effect.map(writing(credentials.update(params.id, payload)), single),
        delete: ({ params }) => Effect.as(writing(credentials.delete(params.id)), deleted)
      })
    )
    return withMiddlewareOnly(group)
  })
)
