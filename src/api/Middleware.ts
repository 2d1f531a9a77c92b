import { Context } from "effect"
import { HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import {
  Forbidden,
  InternalError,
  InvalidParams,
  NotFound,
  ServiceUnavailable,
  Unauthorized
} from "../domain/Errors.ts"
import type { CurrentPrincipal } from "../domain/Principal.ts"
import { PayloadTooLarge } from "./HttpErrors.ts"

/**
 * Admits whoever may do what the endpoint is called (section 5, D51). Outermost: 401 and 403 are decided before path and body
 * are read (D4).
 */
export class Authentication extends HttpApiMiddleware.Service<Authentication, { provides: CurrentPrincipal }>()(
  "byok/Authentication",
  {
    error: [Unauthorized, Forbidden, InternalError, ServiceUnavailable],
    security: {
      management_key: HttpApiSecurity.bearer.pipe(
        HttpApiSecurity.annotate(
          OpenApi.Description,
          "A management key of the account, or a viewer's to read; issued on the command line."
        )
      )
    }
  }
) {}

/** Requires JSON in UTF-8 of at most 256 KiB; reports every field and header that does not decode (D7, D8, D9). */
export class JsonBody extends HttpApiMiddleware.Service<JsonBody, { requires: CurrentPrincipal }>()("byok/JsonBody", {
  error: [InvalidParams, PayloadTooLarge, ServiceUnavailable]
}) {}

/** Reports every query parameter that does not decode (D7). */
export class QueryParameters extends HttpApiMiddleware.Service<QueryParameters>()("byok/QueryParameters", {
  error: InvalidParams
}) {}

/** Treats a path that does not decode as a resource that does not exist (D5). */
export class ResourcePath extends HttpApiMiddleware.Service<ResourcePath>()("byok/ResourcePath", { error: NotFound }) {}

/** Whether an endpoint reads the credential that its path names, alone or with its sealed key: it is then read along with the API key. */
export const ReadsCredential = Context.Reference<"alone" | "sealed" | undefined>("byok/ReadsCredential", {
  defaultValue: () => undefined
})
