import { Context, Effect, Layer, Option, Redacted } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import {
  AllowedTo,
  CurrentLink,
  LinkAuthentication,
  LinkRefused,
  LinksApi,
  NotAllowedByLink,
  NotSealedForLink
} from "../api/LinksApi.ts"
import type { Credential } from "../domain/Credential.ts"
import { decodeCredentialChanges } from "../domain/CredentialChanges.ts"
import { InvalidParams, NotFound } from "../domain/Errors.ts"
import type { CredentialId } from "../domain/Identifiers.ts"
import { decodeNewCredential } from "../domain/NewCredential.ts"
import { Provider } from "../domain/Provider.ts"
import { makeOperations } from "../http/Handlers.ts"
import * as RequestDecodingLive from "../http/RequestDecodingLive.ts"
import { Credentials } from "../port/Credentials.ts"
import { RequestQueues } from "../port/FairQueue.ts"
import { Links } from "../service/links/Links.ts"
import * as Page from "./Page.ts"
import { HttpServerRequest } from "effect/http"
import { CurrentActor, CurrentCaller } from "../domain/CurrentCaller.ts"
import { makeKnownAccounts } from "../http/AuthenticationLive.ts"
import { isRepeated } from "../http/RequestHeaders.ts"
import { CurrentRequestLog } from "../http/traceAndLog.ts"
import { hashApiKey, hasWrongChecksum } from "../port/ApiKey.ts"
import { LinkClosed } from "../port/Links.ts"

/** Looks the link up by the hash of its token on every request; what it does afterwards is refused if it closes meanwhile. */
const authentication = Layer.effect(
  LinkAuthentication,
  Effect.gen(function* () {
    const { find } = yield* Links
    const { reads } = yield* RequestQueues
    const known = makeKnownAccounts()
    /** Fails unless the link is open. */
    const findOpen = (token: Redacted.Redacted) =>
      Effect.flatMap(find(token), (found) => {
        const state = Option.match(found, { onNone: () => "unknown" as const, onSome: ({ state }) => state })
        return Option.isSome(found) && state === "open"
          ? Effect.succeed(found.value)
          : Effect.fail(LinkRefused.as(state === "open" ? "unknown" : state))
      })
    return LinkAuthentication.of({
      link: (app, { credential, endpoint }) =>
        Effect.gen(function* () {
          const token = Redacted.value(credential)
          const request = yield* HttpServerRequest.HttpServerRequest
          if (token === "" || isRepeated(request, "authorization") || hasWrongChecksum(token)) {
            return yield* LinkRefused.as("unknown")
          }
          const hash = hashApiKey(credential, "latin1")
          const looked = reads(known.tenantOf(hash), findOpen(credential))
          const link = yield* Effect.tapError(looked, () => Effect.sync(() => known.forget(hash)))
          const { account_id, link_id, purpose } = link
          known.remember(hash, account_id)
          const log = yield* CurrentRequestLog
          if (log !== undefined) Object.assign(log, { account_id, link_id })
          if (!Context.get(endpoint.annotations, AllowedTo).includes(purpose)) return yield* new NotAllowedByLink()
          return yield* app.pipe(
            Effect.provideService(CurrentLink, link),
            Effect.provideService(CurrentCaller, { account_id }),
            Effect.provideService(CurrentActor, { kind: "link", link_id }),
            Effect.catchDefect((defect) =>
              Effect.andThen(defect instanceof LinkClosed ? findOpen(credential) : Effect.void, Effect.die(defect))
            )
          )
        })
    })
  })
)

type Sealed = Parameters<Links["Service"]["open"]>[1]

/** The tenants' operations, confined to the workspace of the link, and to the credential of one that replaces its key. */
const handlers = HttpApiBuilder.group(
  LinksApi,
  "links",
  Effect.fnUntraced(function* (handlers) {
    const credentials = yield* Credentials
    const links = yield* Links
    const operations = yield* makeOperations

    const opened = Effect.fnUntraced(function* (sealed: Sealed, provider: string, id: CredentialId | null) {
      const link = yield* CurrentLink
      const key = yield* Effect.catchTag(
        links.open(link, sealed, { provider, credential_id: id }),
        "NotForThisLink",
        () => new NotSealedForLink()
      )
      return Redacted.value(key)
    })

    const own = Effect.fnUntraced(function* (id: CredentialId) {
      const { credential_id, workspace_id } = yield* CurrentLink
      if (credential_id !== null && credential_id !== id) return yield* new NotFound()
      const credential: Credential = yield* credentials.get(id)
      return credential.workspace_id === workspace_id ? credential : yield* new NotFound()
    })
    const onOwn =
      <Given extends { readonly params: { readonly id: CredentialId } }, A, E, R>(
        operation: (given: Given) => Effect.Effect<A, E, R>
      ) =>
      (given: Given) =>
        Effect.andThen(own(given.params.id), operation(given))
    const inWorkspace = <Given extends object>(given: Given) =>
      Effect.map(CurrentLink, ({ workspace_id }) => ({ ...given, workspace_id }))

    return handlers.handleAll({
      about: () =>
        Effect.gen(function* () {
          const link = yield* CurrentLink
          const names = Option.getOrUndefined(yield* links.namesOf(link))
          if (names === undefined) return yield* LinkRefused.as("unknown")
          const chooses = link.provider === null && (link.purpose === "connect" || link.purpose === "manage")
          return { data: { ...link, ...names, providers: chooses ? Provider.literals : [] } }
        }),
      create: ({ payload: { sealed_key, ...given } }) =>
        Effect.gen(function* () {
          const { provider, workspace_id } = yield* CurrentLink
          if (provider !== null && provider !== given.provider) {
            return yield* InvalidParams.of({ path: ["provider"], message: `must be ${provider}` })
          }
          const key = yield* opened(sealed_key, given.provider, null)
          const payload = yield* decodeNewCredential({ ...given, workspace_id, key })
          return yield* operations.create({ headers: {}, payload })
        }),
      update: ({ params, payload: { sealed_key, ...given } }) =>
        Effect.gen(function* () {
          const { provider } = yield* own(params.id)
          const { purpose } = yield* CurrentLink
          if (purpose === "replace" && sealed_key === undefined) {
            return yield* InvalidParams.of({ path: ["sealed_key"], message: "is required" })
          }
          const key = sealed_key === undefined ? {} : { key: yield* opened(sealed_key, provider, params.id) }
          const payload = yield* decodeCredentialChanges({ ...given, ...key })
          return yield* operations.update({ params, payload })
        }),
      list: ({ query, request }) => Effect.flatMap(inWorkspace(query), (query) => operations.list({ query, request })),
      plan: ({ payload, request }) =>
        Effect.flatMap(inWorkspace(payload), (payload) => operations.plan({ payload, request })),
      order: ({ payload }) => Effect.flatMap(inWorkspace(payload), (payload) => operations.order({ payload })),
      events: ({ query }) =>
        query.credential_id === undefined
          ? Effect.fail(InvalidParams.of({ path: ["credential_id"], message: "is required" }))
          : Effect.andThen(own(query.credential_id), operations.events({ query })),
      get: onOwn(operations.get),
      status: onOwn(operations.status),
      delete: onOwn(operations.delete)
    })
  })
)

/** The routes of the owner's page and of its API. */
export const layer = Layer.merge(HttpApiBuilder.layer(LinksApi), Page.layer).pipe(
  Layer.provide(handlers),
  Layer.provide([authentication, RequestDecodingLive.layer]),
  Layer.provide(RequestQueues.layer)
)
