import { Clock, Effect, Layer, Redacted, Result, Schema } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { NotForRouting } from "../contract/attempts.ts"
import { InvalidParams, ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import { readKeyMaterial } from "../domain/KeyMaterial.ts"
import { Provider } from "../domain/Provider.ts"
import { ownKeysOnly } from "../domain/routing/RoutingRequest.ts"
import { makeMeter, memoize } from "../runtime/Meter.ts"
import { Attempts, type UnknownAttempt } from "../service/routing/Attempts.ts"
import type { Lease } from "../service/routing/Lease.ts"
import type { PlanFailure } from "../service/routing/RouterErrors.ts"
import { Denial, denialAfter, denialFrom, denialResponse } from "./Denial.ts"
import {
  apiKeyHashOf,
  denyStatusOf,
  type ForwardPath,
  reportOf,
  reportsRefusalsOnly,
  targetOf
} from "./ForwardedRequest.ts"

/** The headers of providers that do not take `Authorization: Bearer`. */
const keyHeaders: { readonly [Name in Provider]?: string } = {
  anthropic: "x-api-key",
  "anthropic/2": "x-api-key",
  azure: "api-key",
  "google-ai-studio": "x-goog-api-key"
}

/** The header that takes a key, or its token, to the provider; undefined if no header can. Of several keys of Azure, the first. */
const keyHeaderOf = (lease: Lease): Readonly<Record<string, string>> | undefined => {
  const { provider } = lease.terms
  const material = readKeyMaterial(provider, Redacted.make(lease.text()))
  const secret =
    lease.token !== undefined || Result.isFailure(material)
      ? lease.text()
      : Redacted.value(provider === "azure" ? material.success.labelSource : material.success.secret)
  // Node encodes headers as Latin-1: the bytes of a key stay as they are.
  const value = Buffer.from(secret).toString("latin1")
  if (!/^[\x20-\x7E\x80-\xFF]+$/.test(value)) return undefined
  const name = keyHeaders[provider]
  return name === undefined ? { authorization: `Bearer ${value}` } : { [name]: value }
}

const toDenial = (failure: PlanFailure | UnknownAttempt | InvalidParams | Unauthorized | Denial): Denial => {
  const invalid = (header: string, message: string) => new Denial(InvalidParams.of({ path: [header], message }))
  switch (failure._tag) {
    case "UnknownApiKey":
      return new Denial(Unauthorized.invalid())
    case "ApiKeyMayNotRoute":
      return new Denial(new NotForRouting())
    case "UnknownWorkspace":
      return invalid("X-Byok-Workspace", "must be a workspace of the account; without it, the default one must exist")
    case "UnknownAttempt":
      return invalid("X-Byok-Attempt", "must be the attempt of an answer within the last hour, for the same API key")
    case "TooManyCredentials":
      return invalid("provider", "must have fewer credentials")
    case "PoolsUnavailable":
      return new Denial({ error: new ServiceUnavailable().error, retry_after: 1000 })
    case "Denial":
      return failure
    default:
      return new Denial(failure)
  }
}

const isProvider = Schema.is(Provider)

/** An answer without a key. Its attempt is empty: without the header, some proxies would keep the client's own. */
const nothing = HttpServerResponse.empty({ status: 200, headers: { "x-byok-attempt": "", "content-length": "0" } })

/** The results of forwards, by status. */
const results: Readonly<Record<number, string>> = {
  400: "invalid",
  401: "unauthorized",
  402: "no_key",
  403: "forbidden",
  429: "rate_limited",
  503: "unavailable"
}

/** Answers the two questions of proxies: with which key a request goes on, and what its client is told without one. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const attempts = yield* Attempts
    const clock = yield* Clock.Clock
    const { counter } = yield* makeMeter
    const countOf = memoize((provider: string) =>
      memoize((result: string) => counter("byok.forwards", { provider, result }))
    )

    /** Answers with the key of the request's next attempt, or without one after an attempt that succeeded. */
    const next = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest, path: ForwardPath) {
      const { model, provider } = yield* targetOf(path, request.headers)
      const api_key_hash = yield* apiKeyHashOf(request)
      const { after, options } = yield* reportOf(request.headers)
      const targets = [{ provider, endpoint: ownKeysOnly }]
      const call = { after, keepTrial: !reportsRefusalsOnly(path), mustSign: true, ofOneKey: true }
      const { next, outcome, text } = yield* attempts.next({ ...options, api_key_hash, model, targets }, call)
      if (outcome?._tag === "Succeeded") return nothing
      if (next?.attempt?.lease !== undefined && text !== undefined) {
        const header = keyHeaderOf(next.attempt.lease)
        if (header === undefined) return yield* Denial.of(402, "The stored key cannot be sent in a header")
        return HttpServerResponse.setHeaders(nothing, { ...header, "x-byok-attempt": text })
      }
      return yield* denialAfter(outcome, next, after?.status, clock.currentTimeMillisUnsafe())
    }, Effect.scoped)

    const forward = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
      const { provider } = (yield* HttpRouter.RouteContext).params
      const path = { provider, query: new URLSearchParams(request.url.replace(/^[^?]*/, "")) }
      const count = countOf(isProvider(provider) ? provider : "unknown")
      return yield* Effect.match(next(request, path), {
        onSuccess: (response) => {
          count(response === nothing ? "reported" : "key")()
          return response
        },
        onFailure: (failure) => {
          const denial = toDenial(failure)
          count(results[denial.error.code] ?? "refused")()
          return denialResponse(denial, denyStatusOf(path))
        }
      })
    })

    /** Records why a key was refused, and makes clients with an SDK of a provider come back if another key is left. */
    const refused = Effect.fnUntraced(
      function* ({ headers }: HttpServerRequest.HttpServerRequest) {
        const { after, options } = yield* reportOf(headers)
        if (after === undefined) return denialResponse(denialFrom(headers))
        const { hasOther, outcome, plan } = yield* attempts.replan(options, after)
        if (outcome._tag === "Succeeded") return nothing
        const denial = hasOther
          ? Denial.of(503, "Another key serves the request: send it again")
          : denialAfter(outcome, plan && { plan: () => plan, past: [] }, after.status, clock.currentTimeMillisUnsafe())
        const retry = hasOther ? { "x-should-retry": "true", "retry-after-ms": "1" } : { "x-should-retry": "false" }
        return HttpServerResponse.setHeaders(denialResponse(denial), retry)
      },
      Effect.catch((failure) => Effect.succeed(denialResponse(toDenial(failure))))
    )

    // A path that ends in a slash reaches the router with two more in front.
    for (const path of ["/v1/forward/:provider/*", "///v1/forward/:provider/*"] as const) {
      yield* router.add("*", path, forward)
    }
    yield* router.add("*", "/v1/refused", refused)
  })
).pipe(Layer.provide(Attempts.layer))
