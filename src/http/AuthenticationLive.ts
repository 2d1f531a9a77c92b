import { toIncomingMessage } from "@effect/platform-node/NodeHttpServerRequest"
import { Context, Effect, Layer, Option, Redacted, Result, type Types } from "effect"
import { HttpRouter, HttpServerRequest, type HttpServerResponse } from "effect/http"
import { Authentication } from "../contract/Middleware.ts"
import { Forbidden, type ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import type { AccountId, ApiKeyHash } from "../domain/Identifiers.ts"
import { CurrentPrincipal, isAllowed, type Principal } from "../domain/Principal.ts"
import { hashApiKey, hasWrongChecksum } from "../runtime/ApiKey.ts"
import { ApiKeys } from "../port/ApiKeys.ts"
import { LinkClosed } from "../port/Links.ts"
import { orDefect } from "./databaseDefects.ts"
import { errorResponse } from "./Envelope.ts"
import { RequestQueues } from "../runtime/FairQueue.ts"
import { isRepeated } from "./RequestHead.ts"
import { CurrentRequestLog } from "../runtime/RequestLog.ts"

const refusal = (error: Unauthorized | Forbidden, reason?: string) => {
  const challenge = `Bearer realm="byok"${reason === undefined ? "" : `, error="${reason}"`}`
  return Effect.succeed(errorResponse(error, { "www-authenticate": challenge }))
}

const missingFor = (problem?: string) => refusal(Unauthorized.missing(problem))

/** The answers to requests without exactly one token, by the kind of header. Built once, so that refusals are cheap. */
const missingByKind = {
  none: missingFor(),
  empty: missingFor("must be Bearer and a management key, but is empty"),
  repeated: missingFor("must be sent once, but was sent more often"),
  bearer: missingFor("must be Bearer and a management key, but has no key"),
  bare: missingFor("must be Bearer and a management key, but has no scheme"),
  other: missingFor("must be Bearer and a management key, but has another scheme")
}
const invalid = refusal(Unauthorized.invalid(), "invalid_token")
const forbidden = refusal(new Forbidden(), "insufficient_scope")

/** Classifies an `Authorization` header without a Bearer token. */
const kindOf = (header?: string) => {
  if (header === undefined) return "none"
  if (header.trim() === "") return "empty"
  if (/^bearer\s*$/i.test(header)) return "bearer"
  return /\S\s+\S/.test(header) ? "other" : "bare"
}

type Answering = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  Unauthorized | Forbidden | ServiceUnavailable | Types.unhandled,
  HttpRouter.Provided
>

type Refusal = Effect.Effect<HttpServerResponse.HttpServerResponse>

/** The principal of a token. */
export type TokenPrincipal = Extract<Principal, { readonly kind: "api_key" | "link" }>

/** How to look up tokens of one kind, and how to answer requests whose token is refused. */
export interface TokenLookup {
  /** Looks up a token by its hash; returns an answer if it is refused. */
  readonly resolve: (hash: ApiKeyHash) => Effect.Effect<Result.Result<TokenPrincipal, Refusal>, ServiceUnavailable>
  /** Answers a request without a token, or with several `Authorization` headers. */
  readonly missing: (request: HttpServerRequest.HttpServerRequest) => Refusal
  /** Answers a token whose checksum is wrong. */
  readonly invalid: Refusal
  /** Answers a principal that may not call the endpoint. */
  readonly forbidden: Refusal
}

/** The tenant for which tokens of unknown accounts queue. */
const unknownTenant = "strangers"

/**
 * Remembers the accounts of at most twice `limit` recently used keys, to choose the tenant for which a look-up queues.
 * Saves no look-up: every request looks up its key (D42).
 */
export const makeKnownAccounts = (limit = 100_000) => {
  let recent = new Map<ApiKeyHash, AccountId>()
  let older = new Map<ApiKeyHash, AccountId>()
  return {
    tenantOf: (hash: ApiKeyHash): string => recent.get(hash) ?? older.get(hash) ?? unknownTenant,
    remember: (hash: ApiKeyHash, account_id: AccountId) => {
      if (recent.has(hash)) return
      if (recent.size >= limit) {
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

const logContextOf = ({ account_id, ...principal }: TokenPrincipal) =>
  principal.kind === "link"
    ? { account_id, link_id: principal.link_id }
    : { account_id, api_key_hash: principal.api_key_hash }

/** Looks up the token of each request, checks that its principal may call the endpoint, and provides the principal. */
export const makeAuthentication = Effect.fnUntraced(function* (tokens: TokenLookup) {
  const { reads } = yield* RequestQueues
  const knownAccounts = makeKnownAccounts()
  return Authentication.of({
    management_key: (app, { credential: token, endpoint }) =>
      Effect.contextWith((context: Context.Context<HttpRouter.Provided>): Answering => {
        const request = Context.get(context, HttpServerRequest.HttpServerRequest)
        if (Redacted.value(token) === "" || isRepeated(toIncomingMessage(request), "authorization"))
          return tokens.missing(request)
        if (hasWrongChecksum(Redacted.value(token))) return tokens.invalid
        const hash = hashApiKey(token, "latin1")
        return Effect.flatMap(reads(knownAccounts.tenantOf(hash), tokens.resolve(hash)), (resolved): Answering => {
          if (Result.isFailure(resolved)) {
            knownAccounts.forget(hash)
            return resolved.failure
          }
          const principal = resolved.success
          knownAccounts.remember(hash, principal.account_id)
          const log = Context.get(context, CurrentRequestLog)
          if (log !== undefined) Object.assign(log, logContextOf(principal))
          if (!isAllowed(principal, endpoint.identifier)) return tokens.forbidden
          const answer = Effect.provideService(app, CurrentPrincipal, principal)
          if (principal.kind !== "link") return answer
          // If the link was closed meanwhile, looks it up again to answer why.
          return Effect.catchDefect(answer, (defect) =>
            defect instanceof LinkClosed
              ? Effect.flatMap(tokens.resolve(hash), (again): Answering =>
                  Result.isFailure(again) ? again.failure : Effect.die(defect)
                )
              : Effect.die(defect)
          )
        })
      })
  })
})

/** Authenticates by API key, which it looks up on every request (D2, D3, D4, D42). */
export const layer = Layer.effect(
  Authentication,
  Effect.flatMap(ApiKeys, ({ find }) =>
    makeAuthentication({
      resolve: (api_key_hash) =>
        Effect.map(
          orDefect(find(api_key_hash)),
          Option.match({
            onNone: () => Result.fail(invalid),
            onSome: ({ account_id, role }) => Result.succeed({ kind: "api_key", account_id, api_key_hash, role })
          })
        ),
      missing: (request) =>
        isRepeated(toIncomingMessage(request), "authorization")
          ? missingByKind.repeated
          : missingByKind[kindOf(request.headers["authorization"])],
      invalid,
      forbidden
    })
  )
)
