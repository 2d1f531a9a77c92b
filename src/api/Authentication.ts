import { HttpApiMiddleware, HttpApiSecurity, OpenApi } from "effect/http-api"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { Forbidden, InternalError, ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"

/** Admits only management keys (section 5). Outermost: 401 and 403 are decided before path and body are read (D4). */
export class Authentication extends HttpApiMiddleware.Service<Authentication, { provides: CurrentCaller }>()(
  "byok/Authentication",
  {
    error: [Unauthorized, Forbidden, InternalError, ServiceUnavailable],
    security: {
      management_key: HttpApiSecurity.bearer.pipe(
        HttpApiSecurity.annotate(OpenApi.Description, "A management key of the account, issued on the command line.")
      )
    }
  }
) {}
