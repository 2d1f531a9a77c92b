import { type DateTime, Effect, Schema } from "effect"
import { decoderOf } from "./checkInput.ts"
import { AccountId, CredentialId, LinkId, WorkspaceId } from "./Identifiers.ts"
import { RequestedProvider, type Provider } from "./Provider.ts"
import type { SealedKey, SealingContext } from "./SealedKey.ts"

/** What a link permits: adding one key, replacing one, managing the keys of a workspace, or viewing them. */
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
  /** The provider of the key to connect, null if the owner chooses it; null for other purposes. */
  readonly provider: Provider | null
  /** The credential to replace, or that a used link has stored; otherwise null. */
  readonly credential_id: CredentialId | null
  readonly return_url: string | null
  readonly created_at: DateTime.Utc
  readonly expires_at: DateTime.Utc
}

/** Whether a text is an http or https URL without user name and password. */
const isWebAddress = (text: string) => {
  const url = URL.parse(text)
  return url !== null && /^https?:$/.test(url.protocol) && url.username === "" && url.password === ""
}

const lifetimeMessage = "must be a whole number from 60 to 86400"
const urlMessage = "must be an address with https:// or http:// of at most 2048 characters"

/** The input of creating a link. A link to replace is in the workspace of its credential. */
export const NewLink = Schema.Struct({
  purpose: Purpose,
  workspace_id: Schema.optionalKey(WorkspaceId),
  provider: Schema.optionalKey(RequestedProvider),
  credential_id: Schema.optionalKey(CredentialId),
  return_url: Schema.optionalKey(
    Schema.String.annotate({ message: urlMessage, description: "Where the page leads when its owner is done." }).check(
      // Aborts, because parsing a long address takes long.
      Schema.isMaxLength(2048, { message: urlMessage }).abort(),
      Schema.makeFilter(isWebAddress, { message: urlMessage })
    )
  ),
  expires_in: Schema.Int.annotate({ message: lifetimeMessage, description: "Seconds.", default: 3600 })
    .check(Schema.isBetween({ minimum: 60, maximum: 86_400 }, { message: lifetimeMessage }))
    .pipe(Schema.withDecodingDefaultKey(Effect.succeed(3600)))
})
  .check(
    Schema.makeFilter(({ credential_id, provider, purpose, workspace_id }) => {
      const issueOn = (name: string, issue: string) => ({ path: [name], issue })
      if (purpose === "replace" && credential_id === undefined)
        return issueOn("credential_id", "is required to replace")
      if (purpose !== "replace" && credential_id !== undefined)
        return issueOn("credential_id", "goes with replace only")
      if (purpose !== "connect" && provider !== undefined) return issueOn("provider", "goes with connect only")
      if (purpose === "replace" && workspace_id !== undefined)
        return issueOn("workspace_id", "is that of the credential")
      return undefined
    })
  )
  .annotate({ identifier: "NewLink" })
export type NewLink = typeof NewLink.Type

export const decodeNewLink = decoderOf(NewLink)

/** The link and credential for which a browser seals a key. */
export interface SealTarget extends Pick<Link, "link_id" | "account_id" | "workspace_id"> {
  readonly provider: string
  /** Null for a new credential. */
  readonly credential_id: CredentialId | null
}

/** The AAD of a key that the browser seals. `src/links/page/api.js` encodes the same. */
export const encodeSealTarget = ({ account_id, credential_id, link_id, provider, workspace_id }: SealTarget) =>
  JSON.stringify(["byok/link/1", link_id, account_id, workspace_id, provider, credential_id])

/** The public key, of 65 bytes, with which browsers encrypt provider keys, and the sealed private key. */
export interface LinkKeyPair {
  readonly public_key: Uint8Array
  readonly private_key: SealedKey
}

export type BoundLink = Pick<Link, "link_id" | "account_id" | "workspace_id" | "purpose" | "provider" | "credential_id">

/** What a link's private key is sealed to: the public key, and everything that the page or `encodeSealTarget` reads. */
export const linkContext = (link: BoundLink, public_key: Uint8Array): SealingContext => {
  const { account_id, credential_id, link_id, provider, purpose, workspace_id } = link
  const publicKey = Buffer.from(public_key).toString("base64")
  return JSON.stringify([
    ...["byok/link-key/1", account_id, workspace_id, link_id, purpose],
    ...[provider, credential_id, publicKey]
  ])
}
