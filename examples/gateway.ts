import { DateTime, Effect, Redacted, Schema, Stream } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import type { AccountId, WorkspaceId } from "../src/domain/Identifiers.ts"
import { outcomeOf } from "../src/domain/routing/Outcome.ts"
import type { ProviderPlan } from "../src/domain/routing/Plan.ts"
import { RoutingRequest } from "../src/domain/routing/RoutingRequest.ts"
import { redactKey } from "../src/service/routing/redactKey.ts"
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

/** How much of an upstream's error is read, in bytes. */
const maxError = 64 * 1024

const failure = (status: number, message: string) => HttpServerResponse.jsonUnsafe({ error: { message } }, { status })

/** The start of an error's body. The rest is not waited for. */
const errorIn = async (body: ReadableStream<Uint8Array> | null | undefined) => {
  const chunks: Array<Uint8Array> = []
  let size = 0
  for await (const chunk of body ?? []) {
    chunks.push(chunk)
    if ((size += chunk.length) >= maxError) break
  }
  return Buffer.concat(chunks).subarray(0, maxError).toString()
}

/** Says why no key could serve a request: what each attempt came to, and why the other keys were not tried. */
const unserved = (providers: ReadonlyArray<ProviderPlan>, outcomes: ReadonlyMap<string, string>) => {
  const reasons = providers.flatMap(({ credentials }) =>
    credentials.flatMap(({ credential_id, exclusions }) => {
      const outcome = outcomes.get(credential_id)
      return (outcome ? [outcome] : exclusions.map(({ reason }) => reason)).map((why) => `${credential_id} ${why}`)
    })
  )
  return ["no key could serve the request", ...reasons].join("; ")
}

/** An OpenAI-like gateway with one route, which streams. It tries the customer's keys in the order of the plan. */
export const gateway = ({ account_id, shared, upstream, workspace_id }: Gateway) =>
  HttpRouter.add(
    "POST",
    "/v1/chat/completions",
    Effect.gen(function* () {
      const { redact, run } = yield* Router
      const body = yield* (yield* HttpServerRequest.HttpServerRequest).text
      const { model } = yield* Schema.decodeUnknownEffect(Schema.fromJsonString(Body))(body)
      const targets = [{ provider: "openai", endpoint: { shared: shared !== undefined } }]
      // A short-lived token, where the stored key signs one; other keys come as they are.
      const request = { account_id, workspace_id, model, targets, keys: "tokens" }
      const routed = yield* Schema.decodeUnknownEffect(RoutingRequest)(request)

      const outcomes = new Map<string, string>()
      return yield* run(routed, (step, lease) =>
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
            const stream = Stream.fromReadableStream({ evaluate: () => received, onError: String })
            const leave = Effect.sync(() => leaving.abort())
            const contentType = answer.headers.get("content-type") ?? "application/json"
            const value = HttpServerResponse.stream(Stream.ensuring(stream, leave), { contentType })
            return { outcome: { _tag: "Succeeded" } as const, value }
          }
          // Upstreams repeat keys in errors. A key that is cut in two is not found: redact first, then cut.
          const text = yield* Effect.promise(() => errorIn(received).catch(() => ""))
          const ownRedacted = redact(text, lease)
          const safe =
            shared === undefined ? ownRedacted : redactKey(ownRedacted, "openai", Redacted.make(shared), "<shared>")
          yield* Effect.logWarning(`upstream answered ${answer?.status ?? "nothing"}: ${safe.slice(0, 500)}`)
          const retry_after = answer?.headers.get("retry-after") ?? null
          const outcome = outcomeOf(
            { provider: step.provider, status: answer?.status ?? null, body: text, retry_after },
            now
          )
          if (step._tag === "Own") outcomes.set(step.credential_id, outcome._tag)
          return { outcome, value: HttpServerResponse.text(safe, { status: answer?.status ?? 502 }) }
        })
      ).pipe(
        Effect.catchTag("Exhausted", ({ providers, retry_at }) =>
          Effect.succeed(failure(retry_at === null ? 502 : 429, unserved(providers, outcomes)))
        )
      )
    }).pipe(
      Effect.catchTags({
        // byok cannot tell whether shared capacity is allowed, so it is not used either.
        PoolsUnavailable: () => Effect.succeed(failure(503, "try again")),
        UnknownWorkspace: () => Effect.succeed(failure(403, "the workspace does not exist any more")),
        TooManyCredentials: () => Effect.succeed(failure(400, "the providers have too many keys")),
        // Not for a request that names its account.
        UnknownApiKey: Effect.die,
        ApiKeyMayNotRoute: Effect.die,
        SchemaError: () => Effect.succeed(failure(400, "the body must be JSON with a model of 1 to 255 characters"))
      })
    )
  )
