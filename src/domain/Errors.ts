import { Effect, Schema } from "effect"
import { Issue } from "./Issue.ts"

/** Body and description of a failure that has one sentence only. */
const sentence = <const Code extends number, const Message extends string>(
  code: Code,
  message: Message,
  description: string
) =>
  [
    {
      error: Schema.Struct({ code: Schema.tag(code), message: Schema.tag(message) }).pipe(
        Schema.withConstructorDefault(Effect.succeed({}))
      )
    },
    { httpApiStatus: code, description }
  ] as const

const InvalidParamsBody = Schema.Struct({
  code: Schema.tag(400),
  message: Schema.tag("Invalid request parameters"),
  metadata: Schema.Struct({ issues: Schema.Array(Issue) })
})

/** 400, with every field that was wrong (section 7, D7). */
export class InvalidParams extends Schema.Error<InvalidParams>("InvalidParams")(
  { error: InvalidParamsBody },
  { httpApiStatus: 400, description: "A field of the request is not allowed; `metadata.issues` says which and why." }
) {
  readonly _tag = "InvalidParams"
  static readonly of = (...issues: ReadonlyArray<Issue>) => new this({ error: { metadata: { issues } } })
}

const UnauthorizedBody = Schema.Struct({
  code: Schema.tag(401),
  message: Schema.Literals(["Missing Authentication header", "Invalid API key"])
})

/** 401: no usable token (D2), or one that no live API key has (D3). */
export class Unauthorized extends Schema.Error<Unauthorized>("Unauthorized")(
  { error: UnauthorizedBody },
  { httpApiStatus: 401, description: "The API key is missing, unknown or revoked." }
) {
  readonly _tag = "Unauthorized"
  static readonly missing = () => new this({ error: { message: "Missing Authentication header" } })
  static readonly invalid = () => new this({ error: { message: "Invalid API key" } })
}

/** 403: the caller's API key is not a management key (section 5, D4). */
export class Forbidden extends Schema.Error<Forbidden>("Forbidden")(
  ...sentence(403, "Only management keys can perform this operation", "The API key is not a management key.")
) {
  readonly _tag = "Forbidden"
}

/** 404: unknown, another account's, or not an id at all, indistinguishably (D5). */
export class NotFound extends Schema.Error<NotFound>("NotFound")(
  ...sentence(404, "Resource not found", "There is no such resource for this caller.")
) {
  readonly _tag = "NotFound"
}

/** 405, sent with `Allow` (D10). */
export class MethodNotAllowed extends Schema.Error<MethodNotAllowed>("MethodNotAllowed")(
  ...sentence(405, "Method not allowed", "The route exists, for the methods named in `Allow`.")
) {
  readonly _tag = "MethodNotAllowed"
}

/** 408: head or body of the request did not arrive in time. */
export class RequestTimeout extends Schema.Error<RequestTimeout>("RequestTimeout")(
  ...sentence(408, "Request timeout", "The request did not arrive in time.")
) {
  readonly _tag = "RequestTimeout"
}

/** 409: an idempotency key stands for one request only. */
export class Conflict extends Schema.Error<Conflict>("Conflict")(
  ...sentence(
    409,
    "Idempotency key reused with another request",
    "The account has used the `Idempotency-Key` for another request."
  )
) {
  readonly _tag = "Conflict"
}

/** 413: the body is longer than 256 KiB (D9). */
export class PayloadTooLarge extends Schema.Error<PayloadTooLarge>("PayloadTooLarge")(
  ...sentence(413, "Request payload too large", "The body is longer than 256 KiB.")
) {
  readonly _tag = "PayloadTooLarge"
}

/** 417: an expectation other than `100-continue`. */
export class ExpectationFailed extends Schema.Error<ExpectationFailed>("ExpectationFailed")(
  ...sentence(417, "Expectation failed", "The header `Expect` asks for something other than `100-continue`.")
) {
  readonly _tag = "ExpectationFailed"
}

/** 431: the head of the request is longer than 16 KiB. */
export class HeadersTooLarge extends Schema.Error<HeadersTooLarge>("HeadersTooLarge")(
  ...sentence(431, "Request header fields too large", "The request line and headers are longer than 16 KiB.")
) {
  readonly _tag = "HeadersTooLarge"
}

/** 500 for anything unexpected (D11). Its cause is in the log under the request id. */
export class InternalError extends Schema.Error<InternalError>("InternalError")(
  ...sentence(500, "Internal Server Error", "Server failure. If the request was a create, its outcome is unknown.")
) {
  readonly _tag = "InternalError"
}

/** 503, sent with `Retry-After`: nothing was done, and the same request may be sent again (D14). */
export class ServiceUnavailable extends Schema.Error<ServiceUnavailable>("ServiceUnavailable")(
  ...sentence(
    503,
    "Service temporarily unavailable",
    "Too much work is waiting. Nothing was done; try again after `Retry-After` seconds."
  )
) {
  readonly _tag = "ServiceUnavailable"
}
