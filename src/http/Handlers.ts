import { Context, Effect, Layer, Scope } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../api/Api.ts"
import { Authentication } from "../api/Authentication.ts"
import { credentialBody } from "../api/credentialBody.ts"
import { JsonBody } from "../api/JsonBody.ts"
import { ResourcePath } from "../api/ResourcePath.ts"
import type { Credential } from "../domain/Credential.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { Credentials } from "../port/Credentials.ts"
import { QueueLimit } from "../port/QueueLimit.ts"
import { Turns } from "./Turns.ts"

type Middleware = Authentication | JsonBody | ResourcePath

const json = { contentType: "application/json" }

const created = (credential: Credential, replayed: boolean) =>
  HttpServerResponse.text(credentialBody(credential), {
    ...json,
    status: 201,
    ...(replayed ? { headers: { "idempotent-replayed": "true" } } : {})
  })

const middlewareOf = Context.pick(Authentication, JsonBody, ResourcePath, Scope.Scope)

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
    const inTurn = yield* Turns
    const queue = yield* QueueLimit
    const group = HttpApiBuilder.group(Api, "byok", (handlers) =>
      handlers.handleAll({
        create: ({ headers: { "idempotency-key": idempotency_key }, payload }) =>
          Effect.flatMap(CurrentCaller, ({ account_id }) =>
            Effect.map(
              inTurn(account_id, queue, credentials.createOnce(payload, idempotency_key)),
              ({ credential, replayed }) => created(credential, replayed)
            )
          ),
        get: ({ params }) =>
          Effect.map(credentials.get(params.id), (credential) =>
            HttpServerResponse.text(credentialBody(credential), json)
          )
      })
    )
    return withMiddlewareOnly(group)
  })
)
