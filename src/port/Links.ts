import { Context, Data, type DateTime, type Effect, type Option, type Redacted } from "effect"
import type { InvalidParams } from "../domain/Errors.ts"
import type { ApiKeyHash, AccountId, LinkId } from "../domain/Identifiers.ts"
import type { BoundLink, Link, LinkKeyPair, SealTarget } from "../domain/Link.ts"
import type { SealingRefused } from "./Cipher.ts"
import type { Answer } from "./DatabaseFailure.ts"

/**
 * Stores links by the SHA-256 of their tokens. Links let owners enter or manage provider keys in a browser. A link for
 * one key ends, and loses its key pair, in the transaction of `CredentialRepository` that stores the credential.
 */
export class LinkRepository extends Context.Service<
  LinkRepository,
  {
    /** Stores a link that lasts `expires_in` seconds from now, and returns when it expires; none for an unknown account. */
    readonly insert: (
      link: UndatedLink,
      expires_in: number,
      tokenHash: ApiKeyHash,
      keys: LinkKeyPair | undefined
    ) => Answer<Option.Option<DateTime.Utc>>
    /** The first 1000 open links of an account, in order of creation. */
    readonly list: (account_id: AccountId) => Answer<ReadonlyArray<Link>>
    /** Returns false for an unknown link. Revoking a closed link changes nothing. */
    readonly revoke: (account_id: AccountId, link_id: LinkId) => Answer<boolean>
    /** Revokes an open link whose row was altered, and records that it was. */
    readonly revokeAltered: (link: Pick<Link, "account_id" | "link_id">) => Answer<void>
    readonly find: (tokenHash: ApiKeyHash) => Answer<Option.Option<LinkRecord>>
    /** The names of a link's account and workspace. */
    readonly accountAndWorkspaceNames: (
      link: Link
    ) => Answer<Option.Option<{ readonly account_name: string; readonly workspace_name: string }>>
    /** Replaces the hash of an open link. Returns false if the link was closed or its hash changed meanwhile. */
    readonly replaceHash: (
      link: Pick<LinkRecord, "account_id" | "hash" | "link_id">,
      tokenHash: ApiKeyHash
    ) => Answer<boolean>
    /** Replaces the key pair of an open link and returns the old one; none if the link is closed or takes no keys. */
    readonly replaceKeys: (link: Link, next: LinkKeyPair) => Answer<Option.Option<LinkKeyPair>>
    /** Deletes the key pairs of expired links, and links that expired a week ago. */
    readonly deleteExpired: Answer<void>
  }
>()("byok/LinkRepository") {}

/** Whether only this machine reaches a host. */
export const isLoopback = (host: string) => /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i.test(host)

/** The service's URL without a trailing slash; undefined if none is set and the service listens beyond its machine. */
export class PublicUrl extends Context.Service<PublicUrl, string | undefined>()("byok/PublicUrl") {}

/** A link whose times the database sets: only its clock tells when the link ends. */
export type UndatedLink = Omit<Link, "created_at" | "expires_at">

/** Whether a link is open, or why not. */
export type LinkState = "open" | "used" | "revoked" | "expired"

/** A stored link with its state. A used link names the credential that it stored by `credential_id`, and the key by its label. */
export interface LinkRecord extends Link {
  /** The SHA-256 of the link's token. */
  readonly hash: ApiKeyHash
  readonly state: LinkState
  /** Null if the link takes no keys, or no more. */
  readonly keys: LinkKeyPair | null
  readonly stored_label: string | null
}

/** The defect of a write by a link that is no longer open; nothing was stored. */
export class LinkClosed extends Data.TaggedError("LinkClosed") {}

/** A sealed key does not open: it was not sealed for this link and credential, or its key pair is gone. */
export class NotForThisLink extends Data.TaggedError("NotForThisLink") {}

/** Somebody altered a link in the database: its key pair does not belong to it. */
export class LinkAltered extends Data.TaggedError("LinkAltered") {}

/** Key pairs of links, for HPKE (RFC 9180) with DHKEM(P-256, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM. */
export class LinkKeys extends Context.Service<
  LinkKeys,
  {
    /** Makes a key pair and seals its private key to the link. */
    readonly make: (link: BoundLink) => Answer<LinkKeyPair, SealingRefused>
    /** Proves that a key pair belongs to the link as it is. Dies if this build or its keyring cannot tell. */
    readonly verify: (link: BoundLink, pair: LinkKeyPair) => Effect.Effect<void, LinkAltered>
    /** Decrypts a provider key that a browser encrypted for a credential. */
    readonly open: (
      link: BoundLink,
      pair: LinkKeyPair,
      sealed: { readonly enc: Uint8Array; readonly ciphertext: Uint8Array },
      target: SealTarget
    ) => Answer<Redacted.Redacted, LinkAltered | NotForThisLink | InvalidParams>
  }
>()("byok/LinkKeys") {}
