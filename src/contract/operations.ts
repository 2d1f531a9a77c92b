import { Schema, SchemaTransformation } from "effect"
import { HttpApiEndpoint, HttpApiSchema, OpenApi } from "effect/http-api"
import { AccountEvent, EventId } from "../domain/AuditEvent.ts"
import { Credential } from "../domain/Credential.ts"
import { CredentialChanges } from "../domain/CredentialChanges.ts"
import { Conflict, InvalidParams, NotFound, ServiceUnavailable, StoredKeyUnreadable } from "../domain/Errors.ts"
import { type AccountId, CredentialId, IdempotencyKey, WorkspaceId } from "../domain/Identifiers.ts"
import { NewCredential } from "../domain/NewCredential.ts"
import { precheckLength } from "../domain/checkInput.ts"
import { RequestedProvider, StoredProvider } from "../domain/Provider.ts"
import { CredentialStatus, StoredState } from "../domain/routing/CredentialStatus.ts"
import { Explanation } from "../domain/routing/Explanation.ts"
import { UnusedFor } from "../domain/routing/LastUse.ts"
import { PlanRequest } from "../domain/routing/RoutingRequest.ts"
import { JsonBody } from "./Middleware.ts"

/** A whole number in a query, in decimal digits; refused if it is empty or repeated (L2). */
export const integer = (minimum: number, maximum: number) => {
  const message = `must be an integer from ${minimum} to ${maximum}, given once`
  return Schema.String.annotate({ message })
    .check(Schema.isPattern(/^\d{1,16}$/, { message }))
    .pipe(
      Schema.decodeTo(
        Schema.Int.check(Schema.isBetween({ minimum, maximum }, { message })),
        SchemaTransformation.numberFromString
      )
    )
}

const invalidSearch = "must have 1 to 255 characters and no U+0000, given once"

/** The text for which a list searches: the beginning of a name or label, or the end of a label. */
const SearchText = Schema.String.annotate({ message: invalidSearch }).check(
  Schema.isNonEmpty({ message: invalidSearch }),
  Schema.isMaxCodePoints(255, { message: invalidSearch }),
  Schema.makeFilter((text: string) => !text.includes("\0"), { message: invalidSearch })
)

const ListQuery = Schema.Struct({
  offset: Schema.optionalKey(integer(0, 2_147_483_647)),
  limit: Schema.optionalKey(integer(1, 100)),
  workspace_id: Schema.optionalKey(WorkspaceId),
  provider: Schema.optionalKey(RequestedProvider),
  state: Schema.optionalKey(StoredState),
  include: Schema.optionalKey(Schema.Literal("status").annotate({ message: "must be status, given once" })),
  q: Schema.optionalKey(SearchText),
  unused_for: Schema.optionalKey(UnusedFor)
}).annotate({
  messageUnexpectedKey:
    "only offset, limit, workspace_id, provider, state, q, unused_for and include are parameters of list"
})

const EventsQuery = Schema.Struct({
  credential_id: Schema.optionalKey(CredentialId),
  limit: Schema.optionalKey(integer(1, 100)),
  before: Schema.optionalKey(EventId),
  after: Schema.optionalKey(Schema.Union([EventId, Schema.Literal("0")]))
}).annotate({ messageUnexpectedKey: "only credential_id, limit, before and after are parameters of events" })

/** Maximum credentials in an order: as many as a pool may have. */
const maxIds = 1000
const tooManyIds = `must have at most ${maxIds} elements`

const Order = Schema.Struct({
  workspace_id: Schema.optionalKey(WorkspaceId),
  provider: RequestedProvider,
  ids: Schema.Array(CredentialId)
    .annotate({ message: "must be a list of ids", description: "All of them; the first is tried first." })
    .check(
      Schema.isMaxLength(maxIds, { message: tooManyIds }),
      Schema.makeFilter((ids: ReadonlyArray<string>) => new Set(ids).size === ids.length, {
        message: "must name each credential once"
      })
    )
    .pipe(precheckLength(maxIds, tooManyIds))
})

const ListedCredential = Schema.Struct({
  ...Credential.fields,
  status: Schema.optionalKey(Schema.NullOr(CredentialStatus))
})

/** An answer with one credential. */
export const credentialAnswer = (description: string) => Schema.Struct({ data: Credential }).annotate({ description })

const create = HttpApiEndpoint.post("create", "/", {
  headers: { "idempotency-key": Schema.optionalKey(IdempotencyKey) },
  payload: NewCredential,
  success: HttpApiSchema.WithHeaders(credentialAnswer("The credential was created.").pipe(HttpApiSchema.status(201)), {
    "idempotent-replayed": Schema.optionalKey(
      Schema.Literal("true").annotate({
        description: "Sent if an earlier request created the credential: this one stored nothing."
      })
    )
  }),
  error: Conflict
})
  .annotate(OpenApi.Summary, "Create a credential")
  .annotate(
    OpenApi.Description,
    [
      "Encrypts the key and stores the credential. The response never includes the key. An `Idempotency-Key` makes the",
      "request safe to retry: the same request returns the credential that it created, a different one gets 409.",
      "Requests are compared by what they would create, not by how they are written."
    ].join("\n")
  )
  .middleware(JsonBody)

/** All path parameters of an operation on one credential: Effect matches one that is not listed as literal text. */
type Params = { readonly id: typeof CredentialId; readonly account_id?: typeof AccountId }

export const get = <const P extends Params>(params: P) =>
  HttpApiEndpoint.get("get", "/:id", {
    params,
    success: credentialAnswer("The credential."),
    error: NotFound
  })
    .annotate(OpenApi.Summary, "Get a credential")
    .annotate(OpenApi.Description, "Another account's credential is treated as one that does not exist.")

export const list = HttpApiEndpoint.get("list", "/", {
  query: ListQuery,
  success: Schema.Struct({
    data: Schema.Array(ListedCredential),
    total_count: Schema.Int.annotate({ description: "How many credentials match, on this page and all others." })
  }).annotate({ description: "A page of credentials." }),
  error: InvalidParams
})
  .annotate(OpenApi.Summary, "List credentials")
  .annotate(
    OpenApi.Description,
    [
      "The credentials of one workspace in order of creation, a page at a time. A page with fewer than `limit` elements is",
      "the last one. Unknown parameters are refused. Filters by `state` go by what is stored and open no key: a credential",
      "that is `unreadable` counts as if its key opened."
    ].join("\n")
  )

export const status = <const P extends Params>(params: P) =>
  HttpApiEndpoint.get("status", "/:id/status", {
    params,
    success: Schema.Struct({ data: CredentialStatus }).annotate({ description: "The status." }),
    error: NotFound
  })
    .annotate(OpenApi.Summary, "Get the status of a credential")
    .annotate(
      OpenApi.Description,
      "Whether routers use the credential and, if not, why; when it was last used, and what went wrong last."
    )

const update = <const P extends Params>(params: P) =>
  HttpApiEndpoint.patch("update", "/:id", {
    params,
    payload: CredentialChanges,
    success: credentialAnswer("The credential as it is now."),
    error: [NotFound, StoredKeyUnreadable]
  })
    .annotate(OpenApi.Summary, "Update a credential")
    .annotate(
      OpenApi.Description,
      [
        "Changes the members in the body and keeps the others. `null` clears a member that may be null, and a list",
        "replaces the stored one. A new `key` replaces the old one at once and for good; the credential keeps its id. The",
        "result must obey the rules of create. The body may repeat members that cannot change, with their stored values. A",
        "body that is not empty must have a known member. An update that changes nothing succeeds, so retries are safe."
      ].join("\n")
    )
    .middleware(JsonBody)

export const remove = <const P extends Params>(params: P) =>
  HttpApiEndpoint.delete("delete", "/:id", {
    params,
    success: Schema.Struct({ deleted: Schema.Literal(true) }).annotate({ description: "The credential was deleted." }),
    error: NotFound
  })
    .annotate(OpenApi.Summary, "Delete a credential")
    .annotate(OpenApi.Description, "Removes the credential and its key for good. Deleting it again is a 404.")

export const plan = HttpApiEndpoint.post("plan", "/plan", {
  payload: PlanRequest,
  success: Schema.Struct({ data: Explanation }).annotate({
    description: "The plan, with a verdict on every credential and on shared capacity."
  })
})
  .annotate(OpenApi.Summary, "Explain a plan")
  .annotate(
    OpenApi.Description,
    [
      "Which credentials serve a request, in which order, whether shared capacity does, and every reason why a credential",
      "or shared capacity does not. It plans as a router does, against the credentials as they are now, and opens no key.",
      "An unknown member is refused at every depth: misspelt, it would make the plan less strict than the client meant."
    ].join("\n")
  )
  .middleware(JsonBody)

export const order = HttpApiEndpoint.put("order", "/order", {
  payload: Order,
  success: Schema.Struct({
    data: Schema.Struct({ ...Order.fields, workspace_id: WorkspaceId, provider: StoredProvider })
  }).annotate({ description: "The order, with its workspace." })
})
  .annotate(OpenApi.Summary, "Order the credentials of a provider")
  .annotate(
    OpenApi.Description,
    [
      "Sets the order in which the credentials of a workspace and provider are tried; the default workspace if none is named.",
      "`ids` must name each of them once. A credential that is created meanwhile comes last. Repeating an order is safe."
    ].join("\n")
  )
  .middleware(JsonBody)

/** Query and response of a list of events. */
export const eventsPage = {
  query: EventsQuery,
  success: Schema.Struct({ data: Schema.Array(AccountEvent) }).annotate({ description: "A page of events." })
} as const

const events = HttpApiEndpoint.get("events", "/events", { ...eventsPage, error: InvalidParams })
  .annotate(OpenApi.Summary, "List events")
  .annotate(
    OpenApi.Description,
    [
      "What happened to the account, its workspaces, API keys and credentials, and who did it. The newest events come first;",
      "continue with the last `id` as `before` until a page is empty. With `after` the events come in order, from the first with",
      "`after=0`: a client that continues with the last `id` gets each event once, about a second after it happened."
    ].join("\n")
  )

/** The tenants' operations on credentials, with paths relative to the collection. */
export const operationsAt = <const P extends Params>(params: P) =>
  [create, list, plan, order, events, get(params), status(params), update(params), remove(params)] as const

/** The answer of a health check that succeeds. */
export const healthAnswer = <const Status extends string>(status: Status) =>
  Schema.Struct({ status: Schema.Literal(status) }).annotate({ description: `The service is ${status}.` })

/** The health check of whether requests can be served: 200 or 503. */
export const ready = HttpApiEndpoint.get("ready", "/health/ready", {
  success: healthAnswer("ready"),
  error: ServiceUnavailable
})
  .annotate(OpenApi.Summary, "Check that requests can be served")
  .annotate(OpenApi.Description, "For probes and load balancers. Needs no key. The log says why it is not ready.")
