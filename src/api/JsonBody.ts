import { HttpApiMiddleware } from "effect/http-api"
import { InvalidParams } from "../domain/Errors.ts"
import { PayloadTooLarge, RequestTimeout } from "./HttpErrors.ts"

/** The body is JSON by name, UTF-8 by content and at most 256 KiB long; what does not decode, of its headers too, is told field by field (D7, D8, D9). */
export class JsonBody extends HttpApiMiddleware.Service<JsonBody>()("byok/JsonBody", {
  error: [InvalidParams, PayloadTooLarge, RequestTimeout]
}) {}
