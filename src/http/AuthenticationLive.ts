import { Effect, Layer, Option, Redacted } from "effect"
import { HttpEffect, HttpServerResponse } from "effect/http"
import { Authentication } from "../api/Authentication.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { Forbidden, Unauthorized } from "../domain/Errors.ts"
import { hashApiKey } from "../port/ApiKey.ts"
import { ApiKeys } from "../port/ApiKeys.ts"

const challenge = (error?: string) =>
  HttpEffect.appendPreResponseHandler((_request, response) => {
    const value = `Bearer realm="byok"${error === undefined ? "" : `, error="${error}"`}`
    return Effect.succeed(HttpServerResponse.setHeader(response, "www-authenticate", value))
  })

/** Looks up the token by its hash on every request (D2, D3, D4, D42). */
export const layer = Layer.effect(
  Authentication,
  Effect.map(ApiKeys, (apiKeys) =>
    Authentication.of({
      management_key: Effect.fnUntraced(function* (app, { credential }) {
        const token = Redacted.value(credential)
        if (token === "") {
          yield* challenge()
          return yield* Unauthorized.missing()
        }
        const api_key_hash = hashApiKey(credential, "latin1")
        const key = yield* apiKeys.find(api_key_hash)
        if (Option.isNone(key)) {
          yield* challenge("invalid_token")
          return yield* Unauthorized.invalid()
        }
        if (!key.value.management) {
          yield* challenge("insufficient_scope")
          return yield* new Forbidden()
        }
        return yield* Effect.provideService(app, CurrentCaller, { account_id: key.value.account_id, api_key_hash })
      })
    })
  )
)
