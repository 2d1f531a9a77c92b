import { HttpApiMiddleware } from "effect/http-api"
import { InvalidParams } from "../domain/Errors.ts"
import { PayloadTooLarge } from "./HttpErrors.ts"

/**
 * Requires a JSON content type and a UTF-8 body of at most 256 KiB; reports every field and header that does not decode
 * (D7, D8, D9).
 */
export class JsonBody extends HttpApiMiddleware.Service<JsonBody>()("byok/JsonBody", {
  error: [InvalidParams, PayloadTooLarge]
}) {}
