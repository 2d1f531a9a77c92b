import { Context, Effect, Layer, Option, Redacted, type Types } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { Authentication } from "../api/Authentication.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { Forbidden, Unauthorized } from "../domain/Errors.ts"
import type { AccountId, ApiKeyHash } from "../domain/Identifiers.ts"
import { hashApiKey, hasWrongChecksum } from "../port/ApiKey.ts"
import { ApiKeys, type FoundApiKey } from "../port/ApiKeys.ts"
import { Prefetched } from "../port/Prefetched.ts"
import { QueueLimits } from "../port/QueueLimits.ts"
import { CurrentExchange, type Exchange } from "./Exchange.ts"
import { requestedCredentialId } from "./requestedCredentialId.ts"
import { Turns } from "./Turns.ts"

const refusal = ({ error }: Unauthorized | Forbidden, reason?: string) =>
  Effect.succeed(
    HttpServerResponse.jsonUnsafe(
      { error },
      {
        status: error.code,
        headers: { "www-authenticate": `Bearer realm="byok"${reason === undefined ? "" : `, error="${reason}"`}` }
      }
    )
  )

/** Ready-made: a refusal costs less than what it refuses. */
const missing = refusal(Unauthorized.missing())
const invalid = refusal(Unauthorized.invalid(), "invalid_token")
const forbidden = refusal(new Forbidden(), "insufficient_scope")

/** What the rest of the request answers, or why it does not begin. */
type Admitted = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  Unauthorized | Forbidden | Types.unhandled,
  HttpServerRequest.HttpServerRequest
>

/** How many API keys are remembered as belonging to an account. */
const maxFamiliar = 10_000

/**
 * Remembers whose turn a token takes. It admits nobody: every request looks its token up (D42). The tokens that no
 * account is known for share one small budget (F9).
 */
const makeParties = ({ account, unknownTokens }: QueueLimits) => {
  const familiar = new Map<ApiKeyHash, AccountId>()
  const unknown = { party: "unknown tokens", limit: unknownTokens }
  return {
    of: (hash: ApiKeyHash) => {
      const account_id = familiar.get(hash)
      return account_id === undefined ? unknown : { party: account_id, limit: account }
    },
    learn: (hash: ApiKeyHash, account_id: AccountId) => {
      if (familiar.has(hash)) return
      for (const oldest of familiar.size < maxFamiliar ? [] : familiar.keys()) {
        familiar.delete(oldest)
        break
      }
      familiar.set(hash, account_id)
    },
    forget: (hash: ApiKeyHash) => void familiar.delete(hash)
  }
}

/** Looks up the token by its hash on every request (D2, D3, D4, D42). */
export const layer = Layer.effect(
  Authentication,
  Effect.gen(function* () {
    const apiKeys = yield* ApiKeys
    const inTurn = yield* Turns
    const parties = makeParties(yield* QueueLimits)
    return Authentication.of({
      management_key: (app, { credential }) => {
        const token = Redacted.value(credential)
        if (token === "") return missing
        if (hasWrongChecksum(token)) return invalid
        const api_key_hash = hashApiKey(credential, "latin1")
        const { limit, party } = parties.of(api_key_hash)

        const admit =
          (exchange: Exchange | undefined) =>
          (key: Option.Option<FoundApiKey>): Admitted => {
            if (Option.isNone(key)) {
              parties.forget(api_key_hash)
              return invalid
            }
            const { account_id, management, prefetched } = key.value
            parties.learn(api_key_hash, account_id)
            if (exchange !== undefined) Object.assign(exchange, { account_id, api_key_hash })
            if (!management) return forbidden
            const caller = { account_id, api_key_hash }
            return Effect.updateContext(app, (context: Context.Context<never>) =>
              Context.add(Context.add(context, CurrentCaller, caller), Prefetched, prefetched)
            )
          }
        return Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ method, url }) =>
          Effect.withFiber((fiber) =>
            Effect.flatMap(
              inTurn(party, limit, apiKeys.find(api_key_hash, requestedCredentialId(method, url))),
              admit(fiber.getRef(CurrentExchange))
            )
          )
        )
      }
    })
  })
)
