import { Effect, Schema, type SchemaIssue } from "effect"
import { Issue, issuesOf } from "./Issue.ts"

/** Arguments of `Schema.Error` for an HTTP error with a constant message. */
export const fixedMessage = <const Code extends number, const Message extends string>(
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

/** 400: lists every invalid field (section 7, D7). */
export class InvalidParams extends Schema.Error<InvalidParams>("InvalidParams")(
  { error: InvalidParamsBody },
  { httpApiStatus: 400, description: "The request has invalid fields; `metadata.issues` says which and why." }
) {
  readonly _tag = "InvalidParams"
  static readonly of = (...issues: ReadonlyArray<Issue>) => new this({ error: { metadata: { issues } } })
  /** Reports the first 100 issues of a decoding failure. */
  static readonly ofSchema = (issue: SchemaIssue.Issue) => this.of(...issuesOf(issue).slice(0, 100))
}

const UnauthorizedBody = Schema.Struct({
  code: Schema.tag(401),
  message: Schema.Literals(["Missing Authentication header", "Invalid API key"]),
  metadata: Schema.optionalKey(Schema.Struct({ issues: Schema.Array(Issue) }))
})

/** 401: no usable token (D2), or one that is not a live API key (D3). */
export class Unauthorized extends Schema.Error<Unauthorized>("Unauthorized")(
  { error: UnauthorizedBody },
  { httpApiStatus: 401, description: "The API key is missing, unknown or revoked." }
) {
  readonly _tag = "Unauthorized"
  /** `reason` says what is wrong with a header that was sent; leave it out if none was. */
  static readonly missing = (reason?: string) =>
    new this({
      error: {
        message: "Missing Authentication header",
        ...(reason === undefined ? {} : { metadata: { issues: [{ path: ["Authorization"], message: reason }] } })
      }
    })
  static readonly invalid = () => new this({ error: { message: "Invalid API key" } })
}

/** 403: the role of the API key does not allow the operation (section 5, D4, D51). */
export class Forbidden extends Schema.Error<Forbidden>("Forbidden")(
  ...fixedMessage(
    403,
    "Only management keys can perform this operation",
    "The API key is not a management key, nor a viewer's that reads."
  )
) {
  readonly _tag = "Forbidden"
}

/** 404: the same answer for unknown, foreign and malformed ids (D5). */
export class NotFound extends Schema.Error<NotFound>("NotFound")(
  ...fixedMessage(404, "Resource not found", "The account has no such resource.")
) {
  readonly _tag = "NotFound"
}

const ConflictBody = Schema.Struct({
  code: Schema.tag(409),
  message: Schema.Literals([
    "Idempotency key reused with another request",
    "The credential of this request was deleted"
  ])
})

/** 409: the idempotency key belongs to a different request, or its credential was deleted (L11). */
export class Conflict extends Schema.Error<Conflict>("Conflict")(
  { error: ConflictBody },
  {
    httpApiStatus: 409,
    description:
      "The account has already used the `Idempotency-Key` for a different request, or has deleted what this one created."
  }
) {
  readonly _tag = "Conflict"
  static readonly reused = () => new this({ error: { message: "Idempotency key reused with another request" } })
  static readonly deleted = () => new this({ error: { message: "The credential of this request was deleted" } })
}

/** 409: the stored key cannot be opened, so its credential can only be renamed or deleted (L7). */
export class StoredKeyUnreadable extends Schema.Error<StoredKeyUnreadable>("StoredKeyUnreadable")(
  ...fixedMessage(
    409,
    "The stored key cannot be opened, so this credential can only be renamed or deleted",
    "The stored key cannot be opened."
  )
) {
  readonly _tag = "StoredKeyUnreadable"
}

/** 500: anything unexpected (D11). The cause is logged under the request id. */
export class InternalError extends Schema.Error<InternalError>("InternalError")(
  ...fixedMessage(
    500,
    "Internal Server Error",
    "Server failure. If the request was to create, change or delete something, its outcome is unknown."
  )
) {
  readonly _tag = "InternalError"
}

/** 503, sent with `Retry-After`: nothing was done, so the request is safe to retry (D14). */
export class ServiceUnavailable extends Schema.Error<ServiceUnavailable>("ServiceUnavailable")(
  ...fixedMessage(
    503,
    "Service temporarily unavailable",
    "The service cannot do this now. Nothing was done; retry after `Retry-After` seconds."
  )
) {
  readonly _tag = "ServiceUnavailable"
}
