import { Effect, Layer, Option, Redacted, Result, Schema } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { LinkRefused, LinksApi, NotAllowedByLink, NotSealedForLink, Replacement } from "../contract/LinksApi.ts"
import { Authentication } from "../contract/Middleware.ts"
import { decoderOf } from "../domain/checkInput.ts"
import type { Credential } from "../domain/Credential.ts"
import { decodeCredentialChanges } from "../domain/CredentialChanges.ts"
import { InvalidParams, NotFound } from "../domain/Errors.ts"
import type { CredentialId } from "../domain/Identifiers.ts"
import { decodeNewCredential } from "../domain/NewCredential.ts"
import { CurrentPrincipal, type LinkPrincipal } from "../domain/Principal.ts"
import { Provider } from "../domain/Provider.ts"
import { makeAuthentication, type TokenLookup } from "../http/AuthenticationLive.ts"
import { errorResponse } from "../http/Envelope.ts"
import { withDefects } from "../http/databaseDefects.ts"
import { group, makeOperations } from "../http/Handlers.ts"
import * as RequestDecodingLive from "../http/RequestDecodingLive.ts"
import { Credentials } from "../port/Credentials.ts"
import { RequestQueues } from "../runtime/FairQueue.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import { Links } from "../service/links/Links.ts"
import * as Page from "./Page.ts"

const refusal = (error: LinkRefused | NotAllowedByLink) => Effect.succeed(errorResponse(error))

/**
 * Authenticates each request by its link, which it looks up by the hash of the link's token. The refusal of a used link
 * shows the credential that the link stored.
 */
const authentication = Layer.effect(
  Authentication,
  Effect.flatMap(Links, (links) => {
    const { find, findStored } = withDefects(links)
    const unknownLink = refusal(LinkRefused.inState("unknown"))
    return makeAuthentication({
      resolve: (hash) =>
        Effect.flatMap(find(hash), (record): ReturnType<TokenLookup["resolve"]> => {
          if (Option.isNone(record)) return Effect.succeed(Result.fail(unknownLink))
          const { state, stored_label: _, ...link } = record.value
          return state === "open"
            ? Effect.succeed(Result.succeed({ kind: "link", ...link } as const))
            : Effect.map(findStored(record.value), (stored) =>
                Result.fail(refusal(LinkRefused.inState(state, Option.getOrUndefined(stored))))
              )
        }),
      missing: () => unknownLink,
      invalid: unknownLink,
      forbidden: refusal(new NotAllowedByLink())
    })
  })
)

/** The link of the current request: the routes below admit only links. */
const currentLink = Effect.flatMap(CurrentPrincipal, (principal): Effect.Effect<LinkPrincipal> =>
  principal.kind === "link" ? Effect.succeed(principal) : Effect.die(new Error("The principal is not a link"))
)

const decodeReplacement = decoderOf(Schema.toType(Replacement), { onExcessProperty: "error" })

type Sealed = Parameters<Links["Service"]["openKey"]>[1]

/**
 * The tenants' operations, within the workspace of the link. A replace link may only read and update its credential:
 * authentication refuses it any other operation on credentials.
 */
const handlers = group(
  LinksApi,
  "links",
  Effect.fnUntraced(function* (handlers) {
    const accounts = withDefects(yield* Accounts)
    const credentials = withDefects(yield* Credentials)
    const links = withDefects(yield* Links)
    const operations = yield* makeOperations
    const { reads, writes } = yield* RequestQueues

    /** Opens a key that the page has sealed. Queues as a write, because it stores the link's next key pair. */
    const openSealed = Effect.fnUntraced(function* (sealed: Sealed, provider: string, id: CredentialId | null) {
      const link = yield* currentLink
      const opening = writes(link.account_id, links.openKey(link, sealed, { provider, credential_id: id }))
      const key = yield* Effect.catchTags(opening, {
        LinkAltered: () => LinkRefused.inState("altered"),
        NotForThisLink: () => new NotSealedForLink()
      })
      return Redacted.value(key)
    })

    /** Reads a credential of the link's workspace; for a replace link, only the credential to replace. */
    const credentialOf = Effect.fnUntraced(function* (id: CredentialId) {
      const { account_id, credential_id, workspace_id } = yield* currentLink
      if (credential_id !== null && credential_id !== id) return yield* new NotFound()
      const credential: Credential = yield* reads(account_id, credentials.get(id))
      return credential.workspace_id === workspace_id ? credential : yield* new NotFound()
    })
    /** Runs an operation if `credentialOf` finds its credential. */
    const onCredential =
      <Request extends { readonly params: { readonly id: CredentialId } }, A, E, R>(
        operation: (request: Request) => Effect.Effect<A, E, R>
      ) =>
      (request: Request) =>
        Effect.andThen(credentialOf(request.params.id), operation(request))
    const inWorkspace = <Input extends object>(input: Input) =>
      Effect.map(currentLink, ({ workspace_id }) => ({ ...input, workspace_id }))

    return handlers.handleAll({
      about: Effect.fnUntraced(function* () {
        const link = yield* currentLink
        const names = Option.getOrUndefined(yield* reads(link.account_id, links.accountAndWorkspaceNames(link)))
        if (names === undefined) return yield* LinkRefused.inState("unknown")
        const public_key = yield* Effect.catchTag(links.publicKeyOf(link), "LinkAltered", () =>
          LinkRefused.inState("altered")
        )
        const choosesProvider = link.provider === null && (link.purpose === "connect" || link.purpose === "manage")
        return { data: { ...link, ...names, public_key, providers: choosesProvider ? Provider.literals : [] } }
      }),
      replaceToken: Effect.fnUntraced(function* ({ payload: { token } }) {
        const link = yield* currentLink
        const isReplaced = yield* writes(link.account_id, links.replaceToken(link, token))
        return isReplaced ? { data: { link_id: link.link_id } } : yield* LinkRefused.inState("unknown")
      }),
      create: Effect.fnUntraced(function* ({ headers, payload: { sealed_key, ...fields } }) {
        const { provider, workspace_id } = yield* currentLink
        if (provider !== null && provider !== fields.provider) {
          return yield* InvalidParams.of({ path: ["provider"], message: `must be ${provider}` })
        }
        const key = yield* openSealed(sealed_key, fields.provider, null)
        const payload = yield* decodeNewCredential({ ...fields, workspace_id, key })
        return yield* operations.create({ headers, payload })
      }),
      update: Effect.fnUntraced(function* ({ params, payload: { sealed_key, ...fields }, request }) {
        const { provider } = yield* credentialOf(params.id)
        const { purpose } = yield* currentLink
        if (purpose === "replace") {
          // A replace link must send a key, and nothing else.
          yield* decodeReplacement(sealed_key === undefined ? fields : { ...fields, sealed_key })
        }
        const key = sealed_key === undefined ? {} : { key: yield* openSealed(sealed_key, provider, params.id) }
        const payload = yield* decodeCredentialChanges({ ...fields, ...key })
        return yield* operations.update({ params, payload, request })
      }),
      /** The API keys to which a credential may be restricted. */
      apiKeys: Effect.fnUntraced(function* () {
        const { account_id } = yield* currentLink
        return { data: yield* reads(account_id, accounts.listClientKeys(account_id)) }
      }),
      list: ({ query, request }) => Effect.flatMap(inWorkspace(query), (query) => operations.list({ query, request })),
      plan: ({ payload, request }) =>
        Effect.flatMap(inWorkspace(payload), (payload) => operations.plan({ payload, request })),
      order: ({ payload }) => Effect.flatMap(inWorkspace(payload), (payload) => operations.order({ payload })),
      events: ({ query }) =>
        query.credential_id === undefined
          ? Effect.fail(InvalidParams.of({ path: ["credential_id"], message: "is required" }))
          : Effect.andThen(credentialOf(query.credential_id), operations.events({ query })),
      get: onCredential(operations.get),
      status: onCredential(operations.status),
      delete: onCredential(operations.delete)
    })
  })
)

/** The routes of the owner's page and of its API. */
export const layer = Layer.merge(HttpApiBuilder.layer(LinksApi), Page.layer).pipe(
  Layer.provide(handlers),
  Layer.provide([authentication, RequestDecodingLive.layer]),
  Layer.provide(RequestQueues.layer)
)
