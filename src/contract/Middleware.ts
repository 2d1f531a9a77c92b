import { HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import { Forbidden, InternalError, InvalidParams, ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import type { CurrentPrincipal } from "../domain/Principal.ts"
import { ExpectationFailed, HeadersTooLarge, PayloadTooLarge, RequestTimeout } from "./HttpErrors.ts"

/**
 * Authenticates the caller, and checks that the caller's role allows the endpoint, by its name (section 5, D51). This
 * is the outermost middleware of the contract, so that 401 and 403 precede errors in path and body (D4). It also
 * declares the errors that any request may get.
 */
export class Authentication extends HttpApiMiddleware.Service<Authentication, { provides: CurrentPrincipal }>()(
  "byok/Authentication",
  {
    error: [
      Unauthorized,
      Forbidden,
      InternalError,
      ServiceUnavailable,
      RequestTimeout,
      ExpectationFailed,
      HeadersTooLarge
    ],
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

/** Requires JSON in UTF-8 of at most 256 KiB; reports each invalid field and header (D7, D8, D9). */
export class JsonBody extends HttpApiMiddleware.Service<JsonBody, { requires: CurrentPrincipal }>()("byok/JsonBody", {
  error: [InvalidParams, PayloadTooLarge, ServiceUnavailable]
}) {}
