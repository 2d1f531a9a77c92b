import { Schema, Struct } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema } from "effect/http-api"
import { Conflict, fixedMessage, InvalidParams, NotFound, StoredKeyUnreadable } from "../domain/Errors.ts"
import { AccountId, ApiKeyHash, CredentialId, IdempotencyKey, LinkId, WorkspaceId } from "../domain/Identifiers.ts"
import { Purpose } from "../domain/Link.ts"
import { type Credential, inputFields, timestamp } from "../domain/Credential.ts"
import { RequestedProvider, Provider, StoredProvider } from "../domain/Provider.ts"
import { credentialAnswer, eventsPage, get, list, order, plan, remove, status } from "./operations.ts"
import { Authentication, JsonBody } from "./Middleware.ts"

const closedMessages = {
  unknown: "This link is unknown, or was already opened in another window. Continue there, or ask for a new one.",
  used: "This link was used. Ask for a new one.",
  revoked: "This link was revoked. Ask for a new one.",
  expired: "This link has expired. Ask for a new one.",
  altered: "This link was altered. Nothing was stored: ask for a new one."
} as const

/** 401: a link that is not open. */
export class LinkRefused extends Schema.Error<LinkRefused>("LinkRefused")(
  {
    error: Schema.Struct({
      code: Schema.tag(401),
      message: Schema.Literals(Object.values(closedMessages)),
      /** The key that a used link stored, unless its credential was deleted: with its label then, though it was replaced. */
      metadata: Schema.optionalKey(
        Schema.Struct({ stored: Schema.Struct({ provider: StoredProvider, label: Schema.String }) })
      )
    })
  },
  { httpApiStatus: 401 }
) {
  readonly _tag = "LinkRefused"
  static readonly inState = (state: keyof typeof closedMessages, stored?: Pick<Credential, "label" | "provider">) =>
    new this({ error: { message: closedMessages[state], ...(stored === undefined ? {} : { metadata: { stored } }) } })
}

/** 403: the link's purpose does not allow the operation. */
export class NotAllowedByLink extends Schema.Error<NotAllowedByLink>("NotAllowedByLink")(
  ...fixedMessage(403, "This link does not allow that", "The link is for something else.")
) {
  readonly _tag = "NotAllowedByLink"
}

/** 409: the sealed key does not open. The link's key pair was replaced, or the key was sealed for something else. */
export class NotSealedForLink extends Schema.Error<NotSealedForLink>("NotSealedForLink")(
  ...fixedMessage(
    409,
    "The key was not sealed for this link as it is now. Nothing was stored: send the key again.",
    "The key pair serves once."
  )
) {
  readonly _tag = "NotSealedForLink"
}

/** A provider key that the page sealed for the link's `public_key` (HPKE): the encapsulated key and the ciphertext. */
const SealedInBrowser = Schema.Struct({
  enc: Schema.Uint8ArrayFromBase64Url,
  ciphertext: Schema.Uint8ArrayFromBase64Url
})

/** What the page needs to know about its link. */
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
  expires_at: timestamp("When the link expires."),
  public_key: Schema.NullOr(Schema.Uint8ArrayFromBase64Url),
  /** The providers that the owner may choose. */
  providers: Schema.Array(Provider)
})

/** The link's next token: 32 random bytes in base64url, which the page generated. */
const NextToken = Schema.RedactedFromValue(Schema.String.check(Schema.isPattern(/^[\w-]{43}$/)))

/** A new credential, whose key the page sealed. */
const NewSealedCredential = Schema.Struct({
  provider: RequestedProvider,
  name: Schema.NullOr(Schema.String),
  sealed_key: SealedInBrowser
})

/** The whole body of an update by a link whose purpose is `replace`. */
export const Replacement = Schema.Struct({ sealed_key: SealedInBrowser })

/** Changes of a credential; the page sealed the new key, if there is one. */
const Changes = Schema.Struct({
  ...Struct.map(inputFields("update"), Schema.optionalKey),
  sealed_key: Schema.optionalKey(SealedInBrowser)
})

/** Operations on a link, and the tenants' operations, authenticated by that link. The page seals the keys. */
class LinksGroup extends HttpApiGroup.make("links")
  .add(
    HttpApiEndpoint.get("about", "/link", { success: Schema.Struct({ data: About }), error: LinkRefused }),
    HttpApiEndpoint.put("replaceToken", "/link/token", {
      payload: Schema.Struct({ token: NextToken }),
      success: Schema.Struct({ data: Schema.Struct({ link_id: LinkId }) }),
      error: LinkRefused
    }).middleware(JsonBody),
    HttpApiEndpoint.post("create", "/byok", {
      headers: { "idempotency-key": Schema.optionalKey(IdempotencyKey) },
      payload: NewSealedCredential,
      success: credentialAnswer("The credential.").pipe(HttpApiSchema.status(201)),
      error: [Conflict, LinkRefused, NotSealedForLink]
    }).middleware(JsonBody),
    HttpApiEndpoint.patch("update", "/byok/:id", {
      params: { id: CredentialId },
      payload: Changes,
      success: credentialAnswer("The credential."),
      error: [LinkRefused, NotFound, NotSealedForLink, StoredKeyUnreadable]
    }).middleware(JsonBody),
    HttpApiEndpoint.get("apiKeys", "/api-keys", {
      success: Schema.Struct({ data: Schema.Array(Schema.Struct({ hash: ApiKeyHash, name: Schema.String })) })
    }),
    list.prefix("/byok"),
    plan.prefix("/byok"),
    order.prefix("/byok"),
    HttpApiEndpoint.get("events", "/byok/events", { ...eventsPage, error: [InvalidParams, NotFound] }),
    get({ id: CredentialId }).prefix("/byok"),
    status({ id: CredentialId }).prefix("/byok"),
    remove({ id: CredentialId }).prefix("/byok")
  )
  .prefix("/api/links/v1")
  .middleware(Authentication) {}

/** The private contract between the key owner's page and the service, which share a version. */
export class LinksApi extends HttpApi.make("byok-links")
  .add(LinksGroup)
  .annotate(HttpApi.PayloadParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.QueryParseOptions, { errors: "all", onExcessProperty: "error" })
  .annotate(HttpApi.SuccessParseOptions, { disableChecks: true }) {}
