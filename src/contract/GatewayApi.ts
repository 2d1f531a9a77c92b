import { Effect, Schema, Struct } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiMiddleware, HttpApiSchema, OpenApi } from "effect/http-api"
import { AttemptsGroup, GatewayBody, summary, withData } from "./attempts.ts"
import { withAccountParameter } from "./OpenApiAnnotations.ts"
import { integer, operationsAt, ready } from "./operations.ts"
import { ExpectationFailed, HeadersTooLarge, RequestTimeout } from "./HttpErrors.ts"
import { AccountEvent } from "../domain/AuditEvent.ts"
import { timestamp } from "../domain/Credential.ts"
import { Conflict, fixedMessage, InternalError, InvalidParams, NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { AccountId, ApiKeyHash, CredentialId, IdempotencyKey, LinkId, WorkspaceId } from "../domain/Identifiers.ts"
import { NewLink, Purpose } from "../domain/Link.ts"
import { actorKinds, ApiKeyRole, type CurrentPrincipal } from "../domain/Principal.ts"
import { Provider } from "../domain/Provider.ts"
import { NonEmptyShortText } from "../domain/checkInput.ts"

/** 409: this account or another already has an API key with this hash. */
export class HashInUse extends Schema.Error<HashInUse>("HashInUse")(
  ...fixedMessage(409, "An API key with this hash exists already", "Nothing was imported.")
) {
  readonly _tag = "HashInUse"
}

/** 409: the account of the idempotency key was deleted, and a repeat does not restore it. */
export class AccountGone extends Schema.Error<AccountGone>("AccountGone")(
  ...fixedMessage(409, "The account of this request was deleted", "Nothing was created.")
) {
  readonly _tag = "AccountGone"
}

/** 409: the default workspace has credentials. Creates that name no workspace use it. */
export class DefaultWorkspaceNotEmpty extends Schema.Error<DefaultWorkspaceNotEmpty>("DefaultWorkspaceNotEmpty")(
  ...fixedMessage(
    409,
    "The default workspace has credentials: make another one the default with byok workspace default",
    "Nothing was deleted."
  )
) {
  readonly _tag = "DefaultWorkspaceNotEmpty"
}

/** 403: the service's database role lacks the right to delete accounts. */
export class ErasureNotGranted extends Schema.Error<ErasureNotGranted>("ErasureNotGranted")(
  ...fixedMessage(
    403,
    "The service's database role may not delete accounts: docs/operating.md says which rights to grant it",
    "Nothing was deleted."
  )
) {
  readonly _tag = "ErasureNotGranted"
}

/**
 * Declares the errors of every call under `/v1`. While the database does not answer, calls get 503; but POSTs other than
 * of attempts and reports get 500, because their commit may have succeeded.
 */
export class GatewayFailures extends HttpApiMiddleware.Service<GatewayFailures>()("byok/GatewayFailures", {
  error: [InternalError, ServiceUnavailable, RequestTimeout, ExpectationFailed, HeadersTooLarge]
}) {}

const Named = Schema.Struct({ name: NonEmptyShortText })
const time = timestamp("In UTC, to the millisecond.")
const key = Schema.String.annotate({ description: "The key, shown this once." })
const role = ApiKeyRole.annotate({
  description: "`management` may manage credentials, `viewer` read them, `ordinary` ask for attempts.",
  default: "ordinary"
}).pipe(Schema.withDecodingDefaultKey(Effect.succeed("ordinary" as const)))

const created = <S extends Schema.Top>(schema: S) => withData(schema).pipe(HttpApiSchema.status(201))
const listOf = <F extends Schema.Struct.Fields>(fields: F) => withData(Schema.Array(Schema.Struct(fields)))
const deleted = Schema.Struct({ deleted: Schema.Literal(true) })
const inAccount = { account_id: AccountId }

/** The query of a list that is read 1,000 rows at a time. */
const after = <S extends Schema.Top>(id: S) =>
  Schema.Struct({ after: Schema.optionalKey(id) }).annotate({
    messageUnexpectedKey: "only after is a parameter of this list"
  })

class AccountsGroup extends HttpApiGroup.make("accounts").add(
  HttpApiEndpoint.post("create", "/accounts", {
    headers: { "idempotency-key": Schema.optionalKey(IdempotencyKey) },
    payload: Named,
    success: HttpApiSchema.WithHeaders(
      created(
        Schema.Struct({
          account_id: AccountId,
          workspace_id: WorkspaceId,
          management_key: key,
          management_key_hash: ApiKeyHash
        })
      ),
      { "idempotent-replayed": Schema.optionalKey(Schema.Literal("true")) }
    ),
    error: [Conflict, AccountGone]
  })
    .middleware(GatewayBody)
    .annotateMerge(summary("Create an account with its default workspace and a management key"))
    .annotate(
      OpenApi.Description,
      "Repeating an `Idempotency-Key` answers the ids of the account that it created, and another management key."
    ),
  HttpApiEndpoint.get("list", "/accounts", {
    query: after(AccountId),
    success: listOf({ account_id: AccountId, name: Schema.String, created_at: time }),
    error: InvalidParams
  }).annotateMerge(summary("List accounts in order of their ids, 1,000 at a time")),
  HttpApiEndpoint.delete("delete", "/accounts/:account_id", {
    params: inAccount,
    success: deleted,
    error: [ErasureNotGranted, NotFound]
  }).annotateMerge(summary("Delete an account with everything in it, for good")),
  HttpApiEndpoint.post("createWorkspace", "/accounts/:account_id/workspaces", {
    params: inAccount,
    payload: Named,
    success: created(Schema.Struct({ workspace_id: WorkspaceId })),
    error: NotFound
  })
    .middleware(GatewayBody)
    .annotateMerge(summary("Create a workspace")),
  HttpApiEndpoint.get("listWorkspaces", "/accounts/:account_id/workspaces", {
    params: inAccount,
    query: after(WorkspaceId),
    success: listOf({
      workspace_id: WorkspaceId,
      name: Schema.String,
      is_default: Schema.Boolean,
      created_at: time,
      deleted_at: Schema.NullOr(time)
    }),
    error: [InvalidParams, NotFound]
  }).annotateMerge(summary("List the workspaces of an account in order of creation, 1,000 at a time")),
  HttpApiEndpoint.delete("deleteWorkspace", "/accounts/:account_id/workspaces/:workspace_id", {
    params: { account_id: AccountId, workspace_id: WorkspaceId },
    success: deleted,
    error: [DefaultWorkspaceNotEmpty, NotFound]
  }).annotateMerge(summary("Delete a workspace; its credentials stay readable")),
  HttpApiEndpoint.post("createApiKey", "/accounts/:account_id/api-keys", {
    params: inAccount,
    payload: Schema.Struct({
      ...Named.fields,
      role,
      hash: Schema.optionalKey(ApiKeyHash.annotate({ description: "Imports the key with this SHA-256." }))
    }),
    success: created(Schema.Struct({ hash: ApiKeyHash, role: ApiKeyRole, key: Schema.optionalKey(key) })),
    error: [HashInUse, NotFound]
  })
    .middleware(GatewayBody)
    .annotateMerge(summary("Issue an API key, or import one by its hash")),
  HttpApiEndpoint.get("listApiKeys", "/accounts/:account_id/api-keys", {
    params: inAccount,
    query: after(ApiKeyHash),
    success: listOf({
      hash: ApiKeyHash,
      name: Schema.String,
      role: ApiKeyRole,
      created_at: time,
      revoked_at: Schema.NullOr(time)
    }),
    error: [InvalidParams, NotFound]
  }).annotateMerge(summary("List the API keys of an account in order of creation, 1,000 at a time")),
  HttpApiEndpoint.delete("revokeApiKey", "/accounts/:account_id/api-keys/:hash", {
    params: { account_id: AccountId, hash: ApiKeyHash },
    success: deleted,
    error: NotFound
  }).annotateMerge(summary("Revoke an API key; its next request is refused"))
) {}

class LinksGroup extends HttpApiGroup.make("links").add(
  HttpApiEndpoint.post("create", "/accounts/:account_id/links", {
    params: inAccount,
    payload: NewLink,
    success: created(
      Schema.Struct({
        link_id: LinkId,
        url: Schema.String.annotate({
          description: "To send or show to the owner of a key; its secret is shown this once."
        }),
        expires_at: time
      })
    ),
    error: NotFound
  })
    .middleware(GatewayBody)
    .annotateMerge(summary("Make a link with which the owner of a key adds, replaces or manages it in a browser")),
  HttpApiEndpoint.get("list", "/accounts/:account_id/links", {
    params: inAccount,
    success: listOf({
      link_id: LinkId,
      purpose: Purpose,
      workspace_id: WorkspaceId,
      provider: Schema.NullOr(Provider),
      credential_id: Schema.NullOr(CredentialId),
      created_at: time,
      expires_at: time
    }),
    error: NotFound
  }).annotateMerge(summary("List the links of an account that are open")),
  HttpApiEndpoint.delete("revoke", "/accounts/:account_id/links/:link_id", {
    params: { account_id: AccountId, link_id: LinkId },
    success: deleted,
    error: NotFound
  }).annotateMerge(summary("Revoke a link; its next request is refused"))
) {}

/** An event of any account or of none, with the members of its action. */
const Event = Schema.StructWithRest(
  Schema.Struct({
    ...Struct.pick(AccountEvent.fields, ["at", "action"]),
    id: Schema.String.annotate({ description: "`{seq}.{n}`: n counts the events of one `seq` from 0." }),
    seq: Schema.Int.annotate({ description: "Ascends; events of one transaction on one credential share it." }),
    account_id: Schema.optionalKey(AccountId),
    actor: Schema.StructWithRest(Schema.Struct({ kind: Schema.Literals(actorKinds) }), [
      Schema.Record(Schema.String, Schema.Unknown)
    ])
  }),
  [Schema.Record(Schema.String, Schema.Unknown)]
).annotate({ identifier: "Event" })

class EventsGroup extends HttpApiGroup.make("events").add(
  HttpApiEndpoint.get("list", "/events", {
    query: Schema.Struct({
      after: Schema.optionalKey(integer(0, Number.MAX_SAFE_INTEGER)),
      limit: Schema.optionalKey(integer(1, 100)),
      wait: Schema.optionalKey(integer(0, 60))
    }).annotate({ messageUnexpectedKey: "only after, limit and wait are parameters of events" }),
    success: Schema.Struct({
      data: Schema.Array(Event),
      last_seq: Schema.Int.annotate({ description: "The next `after`, even if there is no event." })
    }),
    error: InvalidParams
  })
    .annotateMerge(summary("Follow the events of all accounts, in order"))
    .annotate(
      OpenApi.Description,
      "A client that continues with `last_seq` as `after` gets each event once. Without events, the answer waits up to `wait` seconds."
    )
) {}

/** Makes the gateway the `CurrentPrincipal` in the account of the path; 404 for an unknown account. */
export class AccountCaller extends HttpApiMiddleware.Service<AccountCaller, { provides: CurrentPrincipal }>()(
  "byok/AccountCaller",
  { error: [NotFound, ServiceUnavailable] }
) {}

/** The tenants' operations, under the path of an account, with the same handlers as in the tenants' API. */
class CredentialsGroup extends HttpApiGroup.make("credentials")
  .add(...operationsAt({ account_id: AccountId, id: CredentialId }))
  .prefix("/accounts/:account_id/credentials")
  .middleware(AccountCaller)
  .annotate(HttpApi.PayloadParseOptions, { errors: "all" }) {}

/** The health check, for a gateway that cannot reach the port of the tenants' API. */
class HealthGroup extends HttpApiGroup.make("health").add(ready) {}

/** The API for gateways in any language. Answers hold provider keys, so only the Unix socket serves it. */
export class GatewayApi extends HttpApi.make("byok-gateway")
  .add(AttemptsGroup, AccountsGroup, LinksGroup, EventsGroup, CredentialsGroup)
  .middleware(GatewayFailures)
  .prefix("/v1")
  .add(HealthGroup)
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotateMerge(
    OpenApi.annotations({
      title: "BYOK for gateways",
      version: "1.0.0",
      description: "Route requests with customers' own keys. Only for the gateway's user, over the Unix socket.",
      transform: withAccountParameter
    })
  ) {}
