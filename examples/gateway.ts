import { DateTime, Effect, Schema, Stream } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import type { AccountId, WorkspaceId } from "../src/domain/Identifiers.ts"
import { outcomeOf } from "../src/domain/routing/Outcome.ts"
import { RoutingRequest } from "../src/domain/routing/RoutingRequest.ts"
import { Router } from "../src/service/routing/Router.ts"

/** A gateway of one customer to one upstream. A real one finds the customer by the token of the request. */
export interface Gateway {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
  readonly upstream: string
  /** The key of the shared capacity; none if there is no capacity. */
  readonly shared: string | undefined
}

const Body = Schema.Struct({ model: Schema.String })

/** The codes of an upstream's error, wherever it puts them. */
const codesIn = (text: string): ReadonlyArray<string> =>
  Array.from(text.matchAll(/"(?:code|type|reason|status)"\s*:\s*"([^"]{1,64})"/g), ([, code = ""]) => code)

const failure = (status: number, message: string) => HttpServerResponse.jsonUnsafe({ error: { message } }, { status })

/** An OpenAI-like gateway with one route, which streams. It tries the customer's keys in the order of the plan. */
export const gateway = ({ account_id, shared, upstream, workspace_id }: Gateway) =>
  HttpRouter.add(
    "POST",
    "/v1/chat/completions",
    Effect.gen(function* () {
      const { plan, redact, run } = yield* Router
      const body = yield* (yield* HttpServerRequest.HttpServerRequest).text
      const { model } = yield* Schema.decodeUnknownEffect(Schema.fromJsonString(Body))(body)
      const targets = [{ provider: "openai", endpoint: { shared: shared !== undefined } }]
      const planned = yield* plan(
        Schema.decodeUnknownSync(RoutingRequest)({ account_id, workspace_id, model, targets })
      )

      const response = yield* run(planned, (_step, lease) =>
        Effect.gen(function* () {
          const leaving = new AbortController()
          const headers = { authorization: `Bearer ${lease?.text() ?? shared}`, "content-type": "application/json" }
          const sent = { method: "POST", headers, body, signal: leaving.signal }
          // Succeeds with the head. The lease ends then; the body goes on.
          const answer = yield* Effect.promise(() => fetch(upstream, sent).catch(() => undefined)).pipe(
            Effect.onInterrupt(() => Effect.sync(() => leaving.abort()))
          )
          const now = (yield* DateTime.now).epochMilliseconds
          const received: ReadableStream<Uint8Array> | null | undefined = answer?.body
          if (answer?.ok === true && received) {
            const stream = Stream.fromReadableStream({
              evaluate: () => received,
              onError: String
            })
            const value = HttpServerResponse.stream(
              Stream.ensuring(
                stream,
                Effect.sync(() => leaving.abort())
              ),
              {
                contentType: answer.headers.get("content-type") ?? "application/json"
              }
            )
            return { outcome: { _tag: "Succeeded" } as const, value }
          }
          const text = answer === undefined ? "" : yield* Effect.promise(() => answer.text().catch(() => ""))
          yield* Effect.logWarning(`upstream answered ${answer?.status ?? "nothing"}: ${redact(text.slice(0, 500))}`)
          const retry_after = answer?.headers.get("retry-after") ?? null
          const outcome = outcomeOf({ status: answer?.status ?? null, codes: codesIn(text), retry_after }, now)
          return { outcome, value: HttpServerResponse.text(redact(text), { status: answer?.status ?? 502 }) }
        })
      )
      return response
    }).pipe(
      Effect.catchTags({
        Exhausted: ({ retry_at }) =>
          Effect.succeed(failure(retry_at === null ? 502 : 429, "no key could serve the request")),
        // What is forbidden is not known: no shared capacity either.
        PoolsUnavailable: () => Effect.succeed(failure(503, "try again")),
        SchemaError: () => Effect.succeed(failure(400, "the body must be JSON with a model"))
      })
    )
  )
