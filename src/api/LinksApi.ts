import { Context, Schema } from "effect"
import {
  HttpApi,
  HttpApiEndpoint,
  HttpApiGroup,
  HttpApiMiddleware,
  HttpApiSchema,
  HttpApiSecurity
} from "effect/http-api"
import type { CurrentCaller } from "../domain/CurrentCaller.ts"
import { Conflict, fixedMessage, InternalError, NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { AccountId, CredentialId, LinkId, WorkspaceId } from "../domain/Identifiers.ts"
import { type Link, Purpose } from "../domain/Link.ts"
import { timestamp } from "../domain/Credential.ts"
import { GivenProvider, Provider, StoredProvider } from "../domain/Provider.ts"
import { body, events, get, list, order, plan, refusals, remove, status } from "./operations.ts"
import { JsonBody, ResourcePath } from "./Middleware.ts"

const closedMessages = {
  unknown: "This link is not known. Ask for a new one.",
  used: "This link was used. Ask for a new one.",
  revoked: "This link was revoked. Ask for a new one.",
  expired: "This link has expired. Ask for a new one."
} as const

/** 401: a link that may not be used, or not any more. */
export class LinkRefused extends Schema.Error<LinkRefused>("LinkRefused")(
  {
    error: Schema.Struct({ code: Schema.tag(401), message: Schema.Literals(Object.values(closedMessages)) })
  },
  { httpApiStatus: 401 }
) {
  readonly _tag = "LinkRefused"
  static readonly as = (state: keyof typeof closedMessages) => new this({ error: { message: closedMessages[state] } })
}

/** 403: the link is for something else. */
export class NotAllowedByLink extends Schema.Error<NotAllowedByLink>("NotAllowedByLink")(
  ...fixedMessage(403, "This link does not allow that", "The link is for something else.")
) {
  readonly _tag = "NotAllowedByLink"
}

/** 409: as much of a key as arrived does not open. */
export class NotSealedForLink extends Schema.Error<NotSealedForLink>("NotSealedForLink")(
  ...fixedMessage(
    409,
    "The key was not sealed for this link as it is now. Nothing was stored: send the key again.",
    "The key pair serves once."
  )
) {
  readonly _tag = "NotSealedForLink"
}

/** The link of the current request. */
export class CurrentLink extends Context.Service<CurrentLink, Link & { readonly public_key: Uint8Array | null }>()(
  "byok/CurrentLink"
) {}

/** The purposes of the links that allow an endpoint. */
export const AllowedTo = Context.Reference<ReadonlyArray<Purpose>>("byok/AllowedTo", {
  defaultValue: () => ["manage"]
})

/** Admits links that are open and for what is asked. Whatever is done is done in their name. */
export class LinkAuthentication extends HttpApiMiddleware.Service<
  LinkAuthentication,
  { provides: CurrentCaller | CurrentLink }
>()("byok/LinkAuthentication", {
  error: [LinkRefused, NotAllowedByLink, NotFound, InternalError, ServiceUnavailable],
  security: { link: HttpApiSecurity.bearer }
}) {}

const anyPurpose = Purpose.literals
const looking: ReadonlyArray<Purpose> = ["manage", "view"]

/** A provider key as the page seals it. */
const SealedInBrowser = Schema.Struct({
  enc: Schema.Uint8ArrayFromBase64Url,
  ciphertext: Schema.Uint8ArrayFromBase64Url
})

const About = Schema.Struct({
  link_id: LinkId,
  account_id: AccountId,
  account_name: Schema.String,
  workspace_id: WorkspaceId,
  workspace_name: Schema.String,
  purpose: Purpose,
  provider: Schema.NullOr(StoredProvider),
  credential_id: Schema.NullOr(CredentialId),
  return_url: Schema.NullOr(Schema.String),
  expires_at: timestamp("When it ends."),
  public_key: Schema.NullOr(Schema.Uint8ArrayFromBase64Url),
  /** Those to choose from. */
  providers: Schema.Array(Provider)
})

const NewSealed = Schema.Struct({
  provider: GivenProvider,
  name: Schema.NullOr(Schema.String),
  sealed_key: SealedInBrowser
})

const Changes = Schema.Struct({
  name: Schema.optionalKey(Schema.NullOr(Schema.String)),
  disabled: Schema.optionalKey(Schema.Boolean),
  sealed_key: Schema.optionalKey(SealedInBrowser)
})

/** The operations of the tenants' API for whoever has a link; a key comes sealed. */
class LinksGroup extends HttpApiGroup.make("links")
  .add(
    HttpApiEndpoint.get("about", "/link", { success: Schema.Struct({ data: About }) }).annotate(AllowedTo, anyPurpose),
    HttpApiEndpoint.post("create", "/byok", {
      payload: NewSealed,
      success: body("The credential.").pipe(HttpApiSchema.status(201)),
      error: [Conflict, NotSealedForLink, ...refusals]
    })
      .middleware(JsonBody)
      .annotate(AllowedTo, ["connect", "manage"]),
    HttpApiEndpoint.patch("update", "/byok/:id", {
      params: { id: CredentialId },
      payload: Changes,
      success: body("The credential."),
      error: [NotSealedForLink, ...refusals]
    })
      .middleware(JsonBody)
      .middleware(ResourcePath)
      .annotate(AllowedTo, ["replace", "manage"]),
    list.prefix("/byok").annotate(AllowedTo, looking),
    plan.prefix("/byok").annotate(AllowedTo, looking),
    order.prefix("/byok"),
    events.prefix("/byok").annotate(AllowedTo, looking),
    get({ id: CredentialId }).prefix("/byok").annotate(AllowedTo, ["replace", "manage", "view"]),
    status({ id: CredentialId }).prefix("/byok").annotate(AllowedTo, looking),
    remove({ id: CredentialId }).prefix("/byok")
  )
  .prefix("/api/links/v1")
  .middleware(LinkAuthentication) {}

/** The contract between the owner's page and the service. It is not public: both are of one version. */
export class LinksApi extends HttpApi.make("byok-links")
  .add(LinksGroup)
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.SuccessParseOptions, { disableChecks: true }) {}
