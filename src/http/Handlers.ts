import { Effect } from "effect"
import { HttpApiBuilder, HttpApiSchema } from "effect/http-api"
import { Api } from "../api/Api.ts"
import type { Credential } from "../domain/Credential.ts"
import { Credentials } from "../port/Credentials.ts"

const answer = (data: Credential, replayed: boolean) =>
  HttpApiSchema.withHeaders({ body: { data }, headers: replayed ? { "idempotent-replayed": "true" as const } : {} })

/** Translates between the contract and the service, nothing else. */
export const layer = HttpApiBuilder.group(
  Api,
  "byok",
  Effect.fnUntraced(function* (handlers) {
    const credentials = yield* Credentials
    return handlers.handleAll({
      create: ({ headers: { "idempotency-key": idempotency_key }, payload }) =>
        Effect.map(credentials.createOnce(payload, idempotency_key), ({ credential, replayed }) =>
          answer(credential, replayed)
        ),
      get: ({ params }) => Effect.map(credentials.get(params.id), (data) => ({ data }))
    })
  })
)
