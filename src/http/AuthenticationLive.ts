import { Context, Effect, Layer, Option, Redacted, Schema, type Types } from "effect"
import { HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { Authentication, ChangesNothing, ReadsCredential } from "../api/Middleware.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { Forbidden, type ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import { type AccountId, type ApiKeyHash, CredentialId } from "../domain/Identifiers.ts"
import { hashApiKey, hasWrongChecksum } from "../port/ApiKey.ts"
import { ApiKeys } from "../port/ApiKeys.ts"
import { Prefetched } from "../port/Prefetched.ts"
import { errorResponse } from "./Envelope.ts"
import { RequestQueues } from "../port/FairQueue.ts"
import { isRepeated } from "./RequestHeaders.ts"
import { CurrentRequestLog } from "./traceAndLog.ts"

const refusal = (error: Unauthorized | Forbidden, reason?: string) => {
  const challenge = `Bearer realm="byok"${reason === undefined ? "" : `, error="${reason}"`}`
  return Effect.succeed(errorResponse(error, { "www-authenticate": challenge }))
}

const missingAs = (found?: string) => refusal(Unauthorized.missing(found))

/** Ready-made: a refusal costs less than what it refuses. */
const missing = {
  none: missingAs(),
  empty: missingAs("must be Bearer and a management key, but is empty"),
  repeated: missingAs("must be sent once, but was sent more often"),
  bearer: missingAs("must be Bearer and a management key, but has no key"),
  bare: missingAs("must be Bearer and a management key, but has no scheme"),
  other: missingAs("must be Bearer and a management key, but has another scheme")
}
const invalid = refusal(Unauthorized.invalid(), "invalid_token")
const forbidden = refusal(new Forbidden(), "insufficient_scope")

/** What an `Authorization` header without a Bearer token has instead; never what it says. */
const foundIn = (header?: string) => {
  if (header === undefined) return "none"
  if (header.trim() === "") return "empty"
  if (/^bearer\s*$/i.test(header)) return "bearer"
  return /\S\s+\S/.test(header) ? "other" : "bare"
}

/** What the rest of the request answers, or why it does not begin. */
type Answering = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  Unauthorized | Forbidden | ServiceUnavailable | Types.unhandled,
  HttpRouter.Provided
>

/** The tenant of all tokens that no account is known for. */
const strangers = "strangers"

/** Remembers the accounts of the keys used last, for the queue alone: every request looks its key up (D42). */
export const makeKnownAccounts = (remembered = 100_000) => {
  let recent = new Map<ApiKeyHash, AccountId>()
  let older = new Map<ApiKeyHash, AccountId>()
  return {
    tenantOf: (hash: ApiKeyHash): string => recent.get(hash) ?? older.get(hash) ?? strangers,
    remember: (hash: ApiKeyHash, account_id: AccountId) => {
      if (recent.has(hash)) return
      if (recent.size >= remembered) {
        older = recent
        recent = new Map()
      }
      recent.set(hash, account_id)
    },
    forget: (hash: ApiKeyHash) => {
      recent.delete(hash)
      older.delete(hash)
    }
  }
}

const decodeId = Schema.decodeUnknownOption(CredentialId)

/** Runs what a caller may do. */
const asCaller = <A, E, R>(
  app: Effect.Effect<A, E, R>,
  caller: CurrentCaller["Service"],
  prefetched: Prefetched | undefined
): Effect.Effect<A, E, Exclude<R, CurrentCaller>> =>
  Effect.updateContext(
    app,
    (context: Context.Context<Exclude<R, CurrentCaller>>) =>
      Context.add(Context.add(context, CurrentCaller, caller), Prefetched, prefetched) as Context.Context<R>
  )

/**
 * Looks up the token by its hash on every request (D2, D3, D4, D42). A get is one statement, and an update two: the look-up
 * reads the credential along that the path names, and the repository answers from what was `Prefetched`.
 */
export const layer = Layer.effect(
  Authentication,
  Effect.gen(function* () {
    const apiKeys = yield* ApiKeys
    const { reads } = yield* RequestQueues
    const known = makeKnownAccounts()
    return Authentication.of({
      management_key: (app, { credential, endpoint }) =>
        Effect.contextWith((context: Context.Context<HttpRouter.Provided>): Answering => {
          const request = Context.get(context, HttpServerRequest.HttpServerRequest)
          if (isRepeated(request, "authorization")) return missing.repeated
          if (Redacted.value(credential) === "") return missing[foundIn(request.headers["authorization"])]
          if (hasWrongChecksum(Redacted.value(credential))) return invalid
          const { params } = Context.get(context, HttpRouter.RouteContext)
          const reading = Context.get(endpoint.annotations, ReadsCredential)
          const id = reading === undefined ? undefined : Option.getOrUndefined(decodeId(params["id"]))
          const api_key_hash = hashApiKey(credential, "latin1")
          const looked = reads(known.tenantOf(api_key_hash), apiKeys.find(api_key_hash, id, reading === "sealed"))
          return Effect.flatMap(looked, (key): Answering => {
            if (Option.isNone(key)) {
              known.forget(api_key_hash)
              return invalid
            }
            const { account_id, management, prefetched, viewer } = key.value
            known.remember(api_key_hash, account_id)
            const caller = { account_id, api_key_hash }
            const log = Context.get(context, CurrentRequestLog)
            if (log !== undefined) Object.assign(log, caller)
            const changesNothing = endpoint.method === "GET" || Context.get(endpoint.annotations, ChangesNothing)
            return management || (viewer === true && changesNothing) ? asCaller(app, caller, prefetched) : forbidden
          })
        })
    })
  })
)
