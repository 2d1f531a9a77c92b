import { Effect, Schema, Struct } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware, OpenApi } from "effect/http-api"
import { PayloadTooLarge } from "./HttpErrors.ts"
import { timestamp } from "../domain/Credential.ts"
import { fixedMessage, InvalidParams, ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import { Provider } from "../domain/Provider.ts"
import { Region } from "../domain/Region.ts"
import { checkInput, decoderOf, NonEmptyShortText } from "../domain/checkInput.ts"
import { outcomeNames } from "../domain/routing/Outcome.ts"
import { maxBody } from "../domain/routing/providerErrors/UpstreamError.ts"
import { flag, longestFreshness, routingFields } from "../domain/routing/RoutingRequest.ts"

/** 403: the API key that names the account is a management key or a viewer's. */
export class NotForRouting extends Schema.Error<NotForRouting>("NotForRouting")(
  ...fixedMessage(403, "This API key cannot route requests", "The API key is a management key or a viewer's.")
) {
  readonly _tag = "NotForRouting"
}

/** Requires JSON in UTF-8 of at most 256 KiB; reports each invalid field. */
export class GatewayBody extends HttpApiMiddleware.Service<GatewayBody, { requires: never }>()("byok/GatewayBody", {
  error: [InvalidParams, PayloadTooLarge, ServiceUnavailable]
}) {}

const freshnessMessage = `must be a whole number from 0 to ${longestFreshness}`

const Attempt = Schema.Struct({
  attempt: Schema.String.annotate({
    description: "What to report it by: opaque, valid for an hour, on every instance. Some 60 bytes longer each time."
  }),
  step: Schema.Literals(["own", "shared"]),
  provider: Provider,
  credential_id: Schema.NullOr(CredentialId),
  label: Schema.NullOr(Schema.String),
  region: Schema.NullOr(Region),
  key: Schema.optionalKey(
    Schema.String.annotate({ description: "The provider's key in the clear, or its token; only with `own`." })
  ),
  key_kind: Schema.optionalKey(
    Schema.Literals(["stored", "token"]).annotate({ description: "The kind of `key`; only with `keys: tokens`." })
  ),
  key_expires_at: Schema.optionalKey(Schema.NullOr(timestamp("When the token expires; null for a stored key."))),
  cloud: Schema.optionalKey(
    Schema.NullOr(
      Schema.Struct(
        Struct.map({ project_id: Schema.String, region: Schema.String, bucket: Schema.String }, Schema.optionalKey)
      )
    ).annotate({
      description: "Members of the stored key that a gateway needs in addition to a token; null for a stored key."
    })
  )
}).annotate({ identifier: "Attempt" })

const next = Schema.NullOr(Attempt).annotate({
  description: "Send the request with this key; null if there is no other."
})
const retry_at = Schema.NullOr(timestamp("When a key may be tried again, if no key is left and the time is known."))

const Reason = Schema.StructWithRest(Schema.Struct({ reason: Schema.String }), [
  Schema.Record(Schema.String, Schema.Unknown)
])
const position = Schema.NullOr(Schema.Int).annotate({ description: "Index in the plan; null if not used." })
const Verdicts = Schema.Struct({
  provider: Provider,
  credentials: Schema.Array(
    Schema.Struct({
      credential_id: CredentialId,
      section: Schema.Literals(["prioritized", "fallback"]),
      position,
      exclusions: Schema.Array(Reason)
    })
  ),
  shared: Schema.Struct({ position, removed: Schema.Array(Reason) })
}).annotate({ identifier: "Verdicts" })

const Refusal = Schema.StructWithRest(Schema.Struct({ code: Schema.Int, message: Schema.String }), [
  Schema.Record(Schema.String, Schema.Unknown)
])

/** Whether a report has either a status or `abandoned: true`, not both. */
const hasOneResult = ({ abandoned, status }: { readonly abandoned?: boolean; readonly status?: number | null }) =>
  (status !== undefined) !== (abandoned === true)

const statusMessage = "must be a whole number, or null if the upstream did not answer"

const maxTookMillis = 3_600_000
const tookMessage = `must be a whole number from 0 to ${maxTookMillis}`

/** The result of an attempt: the upstream's answer, or that it was abandoned. */
const Report = Schema.Struct({
  attempt: Schema.String.annotate({ message: "must be a string", description: "`attempt` of the attempt." }),
  status: Schema.optionalKey(
    Schema.NullOr(Schema.Int).annotate({
      message: statusMessage,
      description: "The upstream's status. One that HTTP does not have counts as a failure of the upstream."
    })
  ),
  retry_after: Schema.optionalKey(
    Schema.NullOr(Schema.Union([Schema.String, Schema.Finite])).annotate({
      message: "must be a string, a number of seconds or null",
      description: "The header `Retry-After`, as it is."
    })
  ),
  body: Schema.optionalKey(
    Schema.NullOr(Schema.String).annotate({
      message: "must be a string or null",
      description: `The body of an error as it is, or the first event of a stream that failed after 200. The first ${maxBody} characters count; messages for people are not kept.`
    })
  ),
  took_ms: Schema.optionalKey(
    Schema.Int.annotate({
      message: tookMessage,
      description:
        "Milliseconds from this service's answer to the upstream's. Without it, the first report counts as then."
    }).check(Schema.isBetween({ minimum: 0, maximum: maxTookMillis }, { message: tookMessage }))
  ),
  abandoned: Schema.optionalKey(Schema.Boolean.annotate({ message: "must be true or false" }))
})
  .check(Schema.makeFilter(hasOneResult, { message: "must have either status or abandoned: true" }))
  .annotate({ identifier: "Report" })

/** Decodes one report; refuses undeclared members. */
export const decodeReport = decoderOf(Report, { onExcessProperty: "error" })

const DocumentedReports = Schema.Array(Report)
  .annotate({ description: "Results of attempts after which no other follows. Each is accepted or refused by itself." })
  .check(Schema.isMaxLength(100))
const isShortList = (input: unknown) => Array.isArray(input) && input.length <= 100

/** Reports of which each is decoded on its own, so that a malformed one refuses no others. */
const Reports = Schema.Array(Schema.Unknown).pipe(
  checkInput(isShortList, "must be a list of at most 100", DocumentedReports)
)

/** Whether a request names its account: by `account_id`, by `api_key_hash` or by both, or else by `api_key` alone. */
const namesOneAccount = ({
  account_id,
  api_key,
  api_key_hash
}: {
  readonly [Name in "account_id" | "api_key" | "api_key_hash"]?: unknown
}) => {
  if (api_key === undefined) return account_id !== undefined || api_key_hash !== null
  return account_id === undefined && api_key_hash === null
}

/** The body that asks for an attempt: a `RoutingRequest` with its account, what was tried, and how to answer. */
export const AttemptRequest = Schema.Struct({
  ...routingFields,
  account_id: Schema.optionalKey(AccountId),
  api_key: Schema.optionalKey(
    Schema.RedactedFromValue(
      Schema.String.annotate({
        message: "must be a string",
        description: "The API key that the caller sent, which names the account instead of `account_id`."
      })
    )
  ),
  workspace_id: Schema.NullOr(WorkspaceId)
    .annotate({
      message: "must be a UUID or null",
      description: "Null for the account's default workspace.",
      default: null
    })
    .pipe(Schema.withDecodingDefaultKey<Schema.NullOr<typeof WorkspaceId>>(Effect.succeed(null))),
  freshness_ms: Schema.Int.annotate({ message: freshnessMessage, default: 0 })
    .check(Schema.isBetween({ minimum: 0, maximum: longestFreshness }, { message: freshnessMessage }))
    .pipe(Schema.withDecodingDefaultKey(Effect.succeed(0))),
  explain: flag(false, "Whether the answer says why each key is used or not, even if there is a first attempt."),
  request_id: Schema.optionalKey(
    NonEmptyShortText.annotate({
      description: "Names the request, so that repeating its first call gets the same key that is on trial."
    })
  ),
  after: Schema.optionalKey(
    Report.annotate({ description: "The result of this request's last attempt; left out at first." })
  ),
  reports: Reports.pipe(Schema.withDecodingDefaultKey(Effect.succeed([])))
})
  .check(
    Schema.makeFilter(namesOneAccount, {
      message: "must name the account by account_id, with or without api_key_hash, or by api_key, or by api_key_hash"
    })
  )
  .annotate({ identifier: "AttemptRequest" })

const outcome = Schema.Literals(Object.values(outcomeNames))
const reportResults = Schema.Array(Schema.Union([Schema.Struct({ outcome }), Schema.Struct({ error: Refusal })]))

const AttemptAnswer = Schema.Struct({
  outcome: Schema.NullOr(outcome).annotate({ description: "What the result in `after` came to; null without one." }),
  next,
  retry_at,
  providers: Schema.optionalKey(
    Schema.Array(Verdicts).annotate({ description: "Only with `explain: true`, or if a plan has no further attempt." })
  ),
  reports: Schema.optionalKey(
    reportResults.annotate({ description: "For each report in the request, its outcome, or why it was refused." })
  )
}).annotate({ identifier: "AttemptAnswer" })

export const withData = <S extends Schema.Constraint>(schema: S): Schema.Struct<{ readonly data: S }> =>
  Schema.Struct({ data: schema })
export const summary = (text: string) => OpenApi.annotations({ summary: text })

export class AttemptsGroup extends HttpApiGroup.make("attempts").add(
  HttpApiEndpoint.post("next", "/attempts", {
    payload: AttemptRequest,
    success: withData(AttemptAnswer),
    error: [Unauthorized, NotForRouting]
  })
    .middleware(GatewayBody)
    .annotateMerge(summary("Get the first key for a request, or report an attempt and get the next one")),
  HttpApiEndpoint.post("report", "/reports", {
    payload: Schema.Struct({ reports: Reports }),
    success: withData(Schema.Struct({ reports: reportResults }))
  })
    .middleware(GatewayBody)
    .annotateMerge(summary("Report attempts after which no other follows"))
) {}
