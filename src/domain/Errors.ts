import { Schema } from "effect"
import { fixedMessage } from "./fixedMessage.ts"
import { Issue } from "./Issue.ts"

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
  ...fixedMessage(403, "Only management keys can perform this operation", "The API key is not a management key.")
) {
  readonly _tag = "Forbidden"
}

/** 404: unknown, another account's, or not an id at all, indistinguishably (D5). */
export class NotFound extends Schema.Error<NotFound>("NotFound")(
  ...fixedMessage(404, "Resource not found", "There is no such resource for this caller.")
) {
  readonly _tag = "NotFound"
}

/** 409: an idempotency key stands for one request only. */
export class Conflict extends Schema.Error<Conflict>("Conflict")(
  ...fixedMessage(
    409,
    "Idempotency key reused with another request",
    "The account has used the `Idempotency-Key` for another request."
  )
) {
  readonly _tag = "Conflict"
}

/** 500 for anything unexpected (D11). Its cause is in the log under the request id. */
export class InternalError extends Schema.Error<InternalError>("InternalError")(
  ...fixedMessage(500, "Internal Server Error", "Server failure. If the request was a create, its outcome is unknown.")
) {
  readonly _tag = "InternalError"
}

/** 503, sent with `Retry-After`: nothing was done, and the same request may be sent again (D14). */
export class ServiceUnavailable extends Schema.Error<ServiceUnavailable>("ServiceUnavailable")(
  ...fixedMessage(
    503,
    "Service temporarily unavailable",
    "Too much work is waiting. Nothing was done; try again after `Retry-After` seconds."
  )
) {
  readonly _tag = "ServiceUnavailable"
}
