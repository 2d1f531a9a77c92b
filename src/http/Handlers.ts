import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../api/Api.ts"
import { credentialBody } from "../api/credentialBody.ts"
import type { Credential } from "../domain/Credential.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { Credentials } from "../port/Credentials.ts"
import { QueueLimit } from "../port/QueueLimit.ts"
import { Turns } from "./Turns.ts"

const json = { contentType: "application/json" }

const created = (credential: Credential, replayed: boolean) =>
  HttpServerResponse.text(credentialBody(credential), {
    ...json,
    status: 201,
    ...(replayed ? { headers: { "idempotent-replayed": "true" } } : {})
  })

/** Translates between the contract and the service, nothing else. */
export const layer = HttpApiBuilder.group(
  Api,
  "byok",
  Effect.fnUntraced(function* (handlers) {
    const credentials = yield* Credentials
    const inTurn = yield* Turns
    const queue = yield* QueueLimit
    return handlers.handleAll({
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
  })
)
