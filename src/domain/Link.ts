import { type DateTime, Effect, Schema } from "effect"
import { InvalidParams } from "./Errors.ts"
import { AccountId, CredentialId, LinkId, WorkspaceId } from "./Identifiers.ts"
import { RequestedProvider, type Provider } from "./Provider.ts"
import type { SealingContext } from "./SealedKey.ts"

/** Permission of a link: add one key, replace one, manage the keys of a workspace, or view them. */
export const Purpose = Schema.Literals(["connect", "replace", "manage", "view"]).annotate({
  message: "must be connect, replace, manage or view"
})
export type Purpose = typeof Purpose.Type

/** A link, without its secret. */
export interface Link {
  readonly link_id: LinkId
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
  readonly purpose: Purpose
  /** Set only to connect; null lets the owner choose. */
  readonly provider: Provider | null
  /** The credential to replace. */
  readonly credential_id: CredentialId | null
  readonly return_url: string | null
  readonly created_at: DateTime.Utc
  readonly expires_at: DateTime.Utc
}

const isWebAddress = (text: string) => {
  const url = URL.parse(text)
  return url !== null && /^https?:$/.test(url.protocol) && url.username === "" && url.password === ""
}

const seconds = "must be a whole number from 60 to 86400"
const address = "must be an address with https:// or http:// of at most 2048 characters"

/** The input of creating a link. `replace` takes the workspace of its credential. */
export const NewLink = Schema.Struct({
  purpose: Purpose,
  workspace_id: Schema.optionalKey(WorkspaceId),
  provider: Schema.optionalKey(RequestedProvider),
  credential_id: Schema.optionalKey(CredentialId),
  return_url: Schema.optionalKey(
    Schema.String.annotate({ message: address, description: "Where the page leads when its owner is done." }).check(
      Schema.isMaxLength(2048, { message: address }),
      Schema.makeFilter(isWebAddress, { message: address })
    )
  ),
  expires_in: Schema.Int.annotate({ message: seconds, description: "Seconds.", default: 3600 })
    .check(Schema.isBetween({ minimum: 60, maximum: 86_400 }, { message: seconds }))
    .pipe(Schema.withDecodingDefaultKey(Effect.succeed(3600)))
})
  .check(
    Schema.makeFilter(({ credential_id, provider, purpose, workspace_id }) => {
      const only = (path: string, issue: string) => ({ path: [path], issue })
      if (purpose === "replace" && credential_id === undefined) return only("credential_id", "is required to replace")
      if (purpose !== "replace" && credential_id !== undefined) return only("credential_id", "goes with replace only")
      if (purpose !== "connect" && provider !== undefined) return only("provider", "goes with connect only")
      if (purpose === "replace" && workspace_id !== undefined) return only("workspace_id", "is that of the credential")
      return undefined
    })
  )
  .annotate({ identifier: "NewLink" })
export type NewLink = typeof NewLink.Type

const decode = Schema.decodeUnknownEffect(NewLink, { errors: "all" })

/** Decodes the input of creating a link. */
export const decodeNewLink = (input: unknown): Effect.Effect<NewLink, InvalidParams> =>
  Effect.mapError(decode(input), ({ issue }) => InvalidParams.ofSchema(issue))

/** The target to which a browser seals a key. */
export interface SealedFor extends Pick<Link, "link_id" | "account_id" | "workspace_id"> {
  readonly provider: string
  /** Null for a new credential. */
  readonly credential_id: CredentialId | null
}

/** The AAD of a key sealed in the browser, as in `src/links/page/api.js`. */
export const encodeSealedFor = ({ account_id, credential_id, link_id, provider, workspace_id }: SealedFor) =>
  JSON.stringify(["byok/link/1", link_id, account_id, workspace_id, provider, credential_id])

type BoundLink = Pick<Link, "link_id" | "account_id" | "workspace_id" | "purpose">

/** The AAD of a link's private key. */
export const linkContext = ({ account_id, link_id, purpose, workspace_id }: BoundLink): SealingContext => ({
  account_id,
  text: JSON.stringify(["byok/link-key/1", account_id, workspace_id, link_id, purpose])
})
