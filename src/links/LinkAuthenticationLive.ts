import { Context, Effect, Layer, Option, Redacted } from "effect"
import { HttpServerRequest } from "effect/http"
import { AllowedTo, CurrentLink, LinkAuthentication, LinkRefused, NotAllowedByLink } from "../api/LinksApi.ts"
import { CurrentActor, CurrentCaller } from "../domain/CurrentCaller.ts"
import { makeKnownAccounts } from "../http/AuthenticationLive.ts"
import { isRepeated } from "../http/RequestHeaders.ts"
import { CurrentRequestLog } from "../http/traceAndLog.ts"
import { hashApiKey, hasWrongChecksum } from "../port/ApiKey.ts"
import { RequestQueues } from "../port/FairQueue.ts"
import { LinkClosed } from "../port/Links.ts"
import { Links } from "../service/links/Links.ts"

/** Looks the link up by the hash of its token on every request; what it does afterwards is refused if it closes meanwhile. */
export const layer = Layer.effect(
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
