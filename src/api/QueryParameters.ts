import { HttpApiMiddleware } from "effect/http-api"
import { InvalidParams } from "../domain/Errors.ts"

/** Reports every query parameter that does not decode (D7). */
export class QueryParameters extends HttpApiMiddleware.Service<QueryParameters>()("byok/QueryParameters", {
  error: InvalidParams
}) {}
