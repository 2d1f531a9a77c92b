import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../api/Api.ts"
import { Credentials } from "../service/Credentials.ts"

/** Translates between the contract and the service, nothing else. */
export const layer = HttpApiBuilder.group(
  Api,
  "byok",
  Effect.fnUntraced(function* (handlers) {
    const credentials = yield* Credentials
    return handlers.handleAll({
      create: ({ payload }) => Effect.map(credentials.create(payload), (data) => ({ data })),
      get: ({ params }) => Effect.map(credentials.get(params.id), (data) => ({ data }))
    })
  })
)
