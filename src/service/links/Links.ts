import { Context, Effect, Layer, Option, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { InvalidParams } from "../../domain/Errors.ts"
import { type AccountId, LinkId } from "../../domain/Identifiers.ts"
import type { Link, LinkKeyPair, NewLink, SealTarget } from "../../domain/Link.ts"
import { CurrentPrincipal } from "../../domain/Principal.ts"
import { AccountRepository, WorkspaceResolver } from "../../port/AccountRepository.ts"
import { formatLinkToken, hashApiKey } from "../../runtime/ApiKey.ts"
import { CredentialRepository } from "../../port/CredentialRepository.ts"
import {
  LinkAltered,
  LinkKeys,
  type LinkRecord,
  LinkRepository,
  NotForThisLink,
  PublicUrl,
  type UndatedLink
} from "../../port/Links.ts"
import { NotKnown } from "../accounts/Accounts.ts"
import { workspaceIssue } from "../credentials/Ownership.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"

const foreignCredential = InvalidParams.of({ path: ["credential_id"], message: "is not a credential of this account" })

const missingPublicUrl = InvalidParams.of({
  path: [],
  message: "needs PUBLIC_URL to be set for the service, which listens beyond its machine: a link begins with it"
})

/** Manages links, with which owners of provider keys add, replace, manage or view them without an API key. */
export class Links extends Context.Service<Links>()("byok/Links", {
  make: Effect.gen(function* () {
    const accounts = yield* AccountRepository
    const credentials = yield* CredentialRepository
    const keys = yield* LinkKeys
    const publicUrl = yield* PublicUrl
    const random = yield* SecureRandom.SecureRandom
    const repository = yield* LinkRepository
    const { resolve } = yield* WorkspaceResolver

    /** Finds the workspace of a new link: that of its credential, else the live one that it names, else the default. */
    const workspaceOf = Effect.fnUntraced(function* (account_id: AccountId, { credential_id, workspace_id }: NewLink) {
      if (!(yield* accounts.exists(account_id))) return yield* new NotKnown({ kind: "account" })
      if (credential_id !== undefined) {
        const credential = yield* credentials.findById(account_id, credential_id)
        return Option.isSome(credential) ? credential.value.workspace_id : yield* foreignCredential
      }
      const workspace = yield* resolve(account_id, workspace_id)
      return Option.isSome(workspace) ? workspace.value : yield* InvalidParams.of(workspaceIssue(workspace_id))
    })

    /** Revokes a link whose row was altered, as the service, and logs it. */
    const orRevoke = <A, E, R>(link: Link, effect: Effect.Effect<A, E | LinkAltered, R>) =>
      Effect.tapError(effect, (error) =>
        error instanceof LinkAltered
          ? Effect.andThen(
              Effect.logError(
                `Link ${link.link_id} of account ${link.account_id} was altered in the database; it is revoked`
              ),
              Effect.provideService(repository.revokeAltered(link), CurrentPrincipal, { kind: "service" })
            )
          : Effect.void
      )

    return {
      /**
       * Creates a link that begins with the URL `at`. Only `url` has its secret, in the fragment, which browsers do not
       * send.
       */
      create: Effect.fn("Links.create")(function* (account_id: AccountId, request: NewLink, at = publicUrl) {
        if (at === undefined) return yield* missingPublicUrl
        const link: UndatedLink = {
          link_id: LinkId.make(yield* random.uuidV7()),
          account_id,
          workspace_id: yield* workspaceOf(account_id, request),
          purpose: request.purpose,
          provider: request.provider ?? null,
          credential_id: request.credential_id ?? null,
          return_url: request.return_url ?? null
        }
        const token = Redacted.make(formatLinkToken(yield* random.randomBytes(32)))
        const keyPair = request.purpose === "view" ? undefined : yield* Effect.orDie(keys.make(link))
        const expires_at = yield* repository.insert(link, request.expires_in, hashApiKey(token), keyPair)
        if (Option.isNone(expires_at)) return yield* new NotKnown({ kind: "account" })
        const url = Redacted.make(`${at}/keys#${Redacted.value(token)}`)
        return { link_id: link.link_id, url, expires_at: expires_at.value }
      }),
      list: repository.list,
      revoke: Effect.fnUntraced(function* (account_id: AccountId, link_id: LinkId) {
        const exists = yield* repository.revoke(account_id, link_id)
        return exists ? { link_id } : yield* new NotKnown({ kind: "link" })
      }),
      /** Finds a link in any state by the hash of its token. */
      find: repository.find,
      accountAndWorkspaceNames: repository.accountAndWorkspaceNames,
      /** Replaces the token of a link; the old one no longer opens it. */
      replaceToken: (link: Pick<LinkRecord, "account_id" | "hash" | "link_id">, token: Redacted.Redacted) =>
        repository.replaceHash(link, hashApiKey(token)),
      /** Finds provider and label of the key that a used link stored, unless its credential was deleted. */
      findStored: ({ account_id, credential_id, state, stored_label: label }: LinkRecord) =>
        state === "used" && credential_id !== null && label !== null
          ? Effect.map(
              credentials.findById(account_id, credential_id),
              Option.map(({ provider }) => ({ provider, label }))
            )
          : Effect.succeedNone,
      /** The public key of a link, once it is proven to be the link's; null if the link takes no keys. */
      publicKeyOf: (link: Link & { readonly keys: LinkKeyPair | null }) =>
        link.keys === null
          ? Effect.succeed(null)
          : Effect.as(orRevoke(link, keys.verify(link, link.keys)), link.keys.public_key),
      /**
       * Opens a provider key that a browser encrypted. Replaces the key pair of the link first, so that each pair opens
       * one key.
       */
      openKey: Effect.fnUntraced(function* (
        link: Link,
        sealed: Parameters<LinkKeys["Service"]["open"]>[2],
        target: Pick<SealTarget, "credential_id" | "provider">
      ) {
        const oldPair = yield* repository.replaceKeys(link, yield* Effect.orDie(keys.make(link)))
        if (Option.isNone(oldPair)) return yield* new NotForThisLink()
        return yield* orRevoke(link, keys.open(link, oldPair.value, sealed, { ...link, ...target }))
      })
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)

  /** Deletes the key pairs of expired links, and later the links, until the service stops. */
  static readonly expiry = Layer.effectDiscard(
    Effect.flatMap(LinkRepository, ({ deleteExpired }) =>
      repeatInBackground("1 minute", deleteExpired, "Closed links could not be deleted")
    )
  )
}
