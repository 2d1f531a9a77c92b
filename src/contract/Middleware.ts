import { Context } from "effect"
import { HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import { Forbidden, InternalError, InvalidParams, ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
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

/** Requires JSON in UTF-8 of at most 256 KiB; each field and header that does not decode is reported (D7, D8, D9). */
export class JsonBody extends HttpApiMiddleware.Service<JsonBody, { requires: CurrentPrincipal }>()("byok/JsonBody", {
  error: [InvalidParams, PayloadTooLarge, ServiceUnavailable]
}) {}

/** Whether an endpoint reads the credential that its path names, alone or with its sealed key: it is then read along with the API key. */
export const ReadsCredential = Context.Reference<"alone" | "sealed" | undefined>("byok/ReadsCredential", {
  defaultValue: () => undefined
})
