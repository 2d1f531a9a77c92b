import { Context, Data, type Option, type Redacted } from "effect"
import type { InvalidParams } from "../domain/Errors.ts"
import type { ApiKeyHash, AccountId, LinkId } from "../domain/Identifiers.ts"
import type { Link, SealedFor } from "../domain/Link.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { KeyStoreUnavailable } from "./Cipher.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Whether a host is reached from this machine alone. */
export const isLoopback = (host: string) => /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i.test(host)

/** Where browsers reach the service, without a slash at the end; undefined if nobody has said so. */
export const PublicUrl = Context.Reference<string | undefined>("byok/PublicUrl", {
  defaultValue: () => "http://127.0.0.1:3000"
})

/** Whether a link may be used, and if not, why. */
export type LinkState = "open" | "used" | "revoked" | "expired"

/** The key pair to which browsers seal: the public key in 65 bytes, and the private one as it is stored. */
export interface LinkKeyPair {
  readonly public_key: Uint8Array
  readonly private_key: SealedKey
}

/** A link with its state; no public key if nothing may be sealed for it. One that was used names the credential that it stored. */
export interface FoundLink extends Link {
  readonly hash: ApiKeyHash
  readonly state: LinkState
  readonly public_key: Uint8Array | null
}

/** What was done by a link that is not open any more: nothing is stored. Dies from wherever it is noticed. */
export class LinkClosed extends Data.TaggedError("LinkClosed") {}

/** A sealed key does not open: it was not sealed for this link and credential, or its key pair is gone. */
export class NotForThisLink extends Data.TaggedError("NotForThisLink") {}

/**
 * Stores links by the SHA-256 of their tokens. A link is used up in the transaction of the write that it makes, with its
 * private key; whoever writes by one is the principal of that write.
 */
export class LinkRepository extends Context.Service<
  LinkRepository,
  {
    /** Returns false if there is no such account. */
    readonly insert: (link: Link, hash: ApiKeyHash, keys: LinkKeyPair | undefined) => Answer<boolean>
    /** The open links of an account, in order of creation. */
    readonly list: (account_id: AccountId) => Answer<ReadonlyArray<Link>>
    /** Returns false if the account has no such link. Revoking one that is closed changes nothing. */
    readonly revoke: (account_id: AccountId, link_id: LinkId) => Answer<boolean>
    readonly find: (hash: ApiKeyHash) => Answer<Option.Option<FoundLink>>
    /** The names of a link's account and workspace. */
    readonly namesOf: (
      link: Link
    ) => Answer<Option.Option<{ readonly account_name: string; readonly workspace_name: string }>>
    /** Has an open link found by another hash. Returns false if it has another one than before by now, or is over. */
    readonly replaceHash: (
      link: Pick<FoundLink, "account_id" | "hash" | "link_id">,
      hash: ApiKeyHash
    ) => Answer<boolean>
    /** Gives an open link its next key pair and returns the one that it had. */
    readonly replaceKeys: (link: Link, next: LinkKeyPair) => Answer<Option.Option<LinkKeyPair>>
    /** Deletes the private keys of links that are over, and links that have been over for a week. */
    readonly forget: Answer<void>
  }
>()("byok/LinkRepository") {}

/** HPKE (RFC 9180) with DHKEM(P-256, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM. */
export class LinkKeys extends Context.Service<
  LinkKeys,
  {
    /** Makes a key pair, whose private key is sealed to the link like a provider key to its credential. */
    readonly make: (link: Link) => Answer<LinkKeyPair, KeyStoreUnavailable>
    readonly open: (
      link: Link,
      pair: LinkKeyPair,
      sealed: { readonly enc: Uint8Array; readonly ciphertext: Uint8Array },
      target: SealedFor
    ) => Answer<Redacted.Redacted, NotForThisLink | InvalidParams>
  }
>()("byok/LinkKeys") {}
