import { Context, Effect, Layer, Option, Redacted, Result, Schema, type Types } from "effect"
import { HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { Authentication, ReadsCredential } from "../contract/Middleware.ts"
import { Forbidden, type ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import { type AccountId, type ApiKeyHash, CredentialId } from "../domain/Identifiers.ts"
import { CurrentPrincipal, mayDo, type Principal } from "../domain/Principal.ts"
import { hashApiKey, hasWrongChecksum } from "../runtime/ApiKey.ts"
import { ApiKeys, type FoundApiKey } from "../port/ApiKeys.ts"
import type { Answer } from "../port/DatabaseFailure.ts"
import { LinkClosed } from "../port/Links.ts"
import { Prefetched } from "../runtime/Prefetched.ts"
import { errorResponse } from "./Envelope.ts"
import { RequestQueues } from "../runtime/FairQueue.ts"
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

type Refusal = Effect.Effect<HttpServerResponse.HttpServerResponse>

/** Who has a token, and the rows that were read along with it. */
export interface Resolved {
  readonly principal: Extract<Principal, { readonly kind: "api_key" | "link" }>
  readonly prefetched?: FoundApiKey["prefetched"]
}

/** The credential that a request names, and what of it the endpoint reads. */
interface Reading {
  readonly id: CredentialId | undefined
  readonly isSealed: boolean
}

/** How tokens of one kind are looked up by their hash, and what is answered to those that are refused. */
export interface Tokens {
  readonly resolve: (hash: ApiKeyHash, reading: Reading) => Answer<Result.Result<Resolved, Refusal>>
  /** No token, or several headers. */
  readonly missing: (request: HttpServerRequest.HttpServerRequest) => Refusal
  readonly invalid: Refusal
  readonly forbidden: Refusal
}

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

/** Runs what a principal may do. */
const asPrincipal = <A, E, R>(
  app: Effect.Effect<A, E, R>,
  { prefetched, principal }: Resolved
): Effect.Effect<A, E, Exclude<R, CurrentPrincipal>> =>
  Effect.updateContext(
    app,
    (context: Context.Context<Exclude<R, CurrentPrincipal>>) =>
      Context.add(Context.add(context, CurrentPrincipal, principal), Prefetched, prefetched) as Context.Context<R>
  )

const loggedOf = ({ account_id, ...principal }: Resolved["principal"]) =>
  principal.kind === "link"
    ? { account_id, link_id: principal.link_id }
    : { account_id, api_key_hash: principal.api_key_hash }

/** Resolves the token of each request to a principal, and asks whether it may do what the endpoint is called. */
export const makeAuthentication = Effect.fnUntraced(function* ({ forbidden, invalid, missing, resolve }: Tokens) {
  const { reads } = yield* RequestQueues
  const known = makeKnownAccounts()
  return Authentication.of({
    management_key: (app, { credential, endpoint }) =>
      Effect.contextWith((context: Context.Context<HttpRouter.Provided>): Answering => {
        const request = Context.get(context, HttpServerRequest.HttpServerRequest)
        if (Redacted.value(credential) === "" || isRepeated(request, "authorization")) return missing(request)
        if (hasWrongChecksum(Redacted.value(credential))) return invalid
        const { params } = Context.get(context, HttpRouter.RouteContext)
        const reading = Context.get(endpoint.annotations, ReadsCredential)
        const id = reading === undefined ? undefined : Option.getOrUndefined(decodeId(params["id"]))
        const hash = hashApiKey(credential, "latin1")
        const looked = reads(known.tenantOf(hash), resolve(hash, { id, isSealed: reading === "sealed" }))
        return Effect.flatMap(looked, (resolved): Answering => {
          if (Result.isFailure(resolved)) {
            known.forget(hash)
            return resolved.failure
          }
          const { principal } = resolved.success
          known.remember(hash, principal.account_id)
          const log = Context.get(context, CurrentRequestLog)
          if (log !== undefined) Object.assign(log, loggedOf(principal))
          if (!mayDo(principal, endpoint.identifier)) return forbidden
          const answered = asPrincipal(app, resolved.success)
          if (principal.kind !== "link") return answered
          // A link that closed meanwhile is looked up again, for the reason.
          return Effect.catchDefect(answered, (defect) =>
            defect instanceof LinkClosed
              ? Effect.flatMap(resolve(hash, { id: undefined, isSealed: false }), (again): Answering =>
                  Result.isFailure(again) ? again.failure : Effect.die(defect)
                )
              : Effect.die(defect)
          )
        })
      })
  })
})

/**
 * Looks up API keys by their hash on every request (D2, D3, D4, D42). A get is one statement, and an update two: the look-up
 * reads the credential along that the path names, and the repository answers from what was `Prefetched`.
 */
export const layer = Layer.effect(
  Authentication,
  Effect.flatMap(ApiKeys, ({ find }) =>
    makeAuthentication({
      resolve: (api_key_hash, { id, isSealed }) =>
        Effect.map(
          find(api_key_hash, id, isSealed),
          Option.match({
            onNone: () => Result.fail(invalid),
            onSome: ({ account_id, prefetched, role }) =>
              Result.succeed({ principal: { kind: "api_key", account_id, api_key_hash, role }, prefetched })
          })
        ),
      missing: (request) =>
        isRepeated(request, "authorization") ? missing.repeated : missing[foundIn(request.headers["authorization"])],
      invalid,
      forbidden
    })
  )
)
