import { toServerResponse } from "@effect/platform-node/NodeHttpServerRequest"
import type { ServerResponse } from "node:http"
import { Context, DateTime, Effect, Layer, Schema, Scope } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder, type HttpApiGroup } from "effect/http-api"
import { Api } from "../contract/TenantsApi.ts"
import { type Credential, membersOf } from "../domain/Credential.ts"
import type { CredentialChanges } from "../domain/CredentialChanges.ts"
import { InvalidParams, ServiceUnavailable, StoredKeyUnreadable } from "../domain/Errors.ts"
import type { CredentialId, IdempotencyKey } from "../domain/Identifiers.ts"
import type { Issue } from "../domain/Issue.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import { accountOf, CurrentPrincipal } from "../domain/Principal.ts"
import type { Explanation } from "../domain/routing/Explanation.ts"
import type { PlanRequest } from "../domain/routing/RoutingRequest.ts"
import { Credentials, type ListRequest, type OrderRequest } from "../port/Credentials.ts"
import { Events } from "../port/Events.ts"
import { Explanations } from "../port/Explanations.ts"
import type { OrderMismatch, PageMemory } from "../port/CredentialRepository.ts"
import { type RequestQueue, RequestQueues } from "../runtime/FairQueue.ts"
import { MemoryBudget } from "../runtime/MemoryBudget.ts"
import { onEnd } from "../runtime/onEnd.ts"
import { CredentialStatus } from "../domain/routing/CredentialStatus.ts"
import { withDefects } from "./databaseDefects.ts"

/** Makes the contract's operations, which translate between requests of the `CurrentPrincipal` and the services. */
export const makeOperations = Effect.gen(function* () {
  const credentials = withDefects(yield* Credentials)
  const { explain, status, statuses } = withDefects(yield* Explanations)
  const events = withDefects(yield* Events)
  const { reads, writes } = yield* RequestQueues
  const holding = holdUntilSent(yield* MemoryBudget)
  const [reading, writing] = [inQueue(reads), inQueue(writes)]
  const list = Effect.fnUntraced(function* (query: ListQuery, take: PageMemory["take"]) {
    const { include, ...page } = { offset: 0, limit: defaultLimit, ...query }
    const memory: PageMemory = { taken: page.limit * usualBytes.lists, take }
    const { credentials: listed, total_count } = yield* reading(credentials.list({ ...page, memory }))
    const data = listed.map(credentialJson)
    if (include !== undefined) {
      const listedStatuses = yield* reading(statuses(listed))
      data.forEach((credential, index) => Object.assign(credential, { status: encodeStatus(listedStatuses[index]) }))
    }
    return yield* jsonInTurns('{"data":[', data, `],"total_count":${total_count}}`)
  })
  /** Answers with one credential. A long answer takes memory until it is sent. */
  const answer = (request: HttpServerRequest.HttpServerRequest, credential: Credential) => {
    const response = jsonResponse(credentialBody(credential))
    const bytes = lengthOf(response)
    return bytes > maxUncountedBytes
      ? holding(request, bytes, () => Effect.succeed(response))
      : Effect.succeed(response)
  }
  return {
    create: ({
      headers: { "idempotency-key": idempotency_key },
      payload
    }: {
      readonly headers: { readonly "idempotency-key"?: IdempotencyKey }
      readonly payload: NewCredential
    }) =>
      Effect.map(writing(credentials.create(payload, idempotency_key)), ({ credential, replayed }) =>
        jsonResponse(credentialBody(credential), {
          status: 201,
          ...(replayed ? { headers: { "idempotent-replayed": "true" } } : {})
        })
      ),
    list: ({ query, request }: WithRequest<{ readonly query: ListQuery }>) =>
      holding(request, (query.limit ?? defaultLimit) * (usualBytes.lists + usualBytes.others), (take) =>
        list(query, take)
      ),
    order: ({ payload }: { readonly payload: OrderRequest }) =>
      writing(credentials.order(payload)).pipe(
        Effect.map((data) => ({ data })),
        Effect.catchTag("OrderRefused", (mismatch) => InvalidParams.of(...orderIssues(payload.ids, mismatch)))
      ),
    events: ({ query }: { readonly query: Partial<Parameters<typeof events.list>[0]> }) =>
      Effect.map(reading(events.list({ limit: defaultLimit, ...query })), (data) => ({ data })),
    plan: ({ payload, request }: WithRequest<{ readonly payload: PlanRequest }>) =>
      holding(request, 0, (take) => Effect.flatMap(reading(explain(payload, { taken: 0, take })), explanationResponse)),
    get: ({ params, request }: WithRequest<ById>) =>
      Effect.flatMap(reading(credentials.get(params.id)), (credential) => answer(request, credential)),
    status: ({ params }: ById) => Effect.map(reading(status(params.id)), (data) => ({ data })),
    update: ({ params, payload, request }: WithRequest<ById & { readonly payload: CredentialChanges }>) =>
      Effect.flatMap(
        Effect.catchTag(writing(credentials.update(params.id, payload)), "StoredKeyUnusable", (unusable) =>
          Effect.andThen(Effect.logError(unusable.message), new StoredKeyUnreadable())
        ),
        (credential) => answer(request, credential)
      ),
    delete: ({ params }: ById) => Effect.as(writing(credentials.delete(params.id)), deletedResponse)
  }
})

interface ById {
  readonly params: { readonly id: CredentialId }
}

type WithRequest<A> = A & { readonly request: HttpServerRequest.HttpServerRequest }

type ListQuery = Partial<ListRequest> & { readonly include?: "status" }

/** Runs an operation once the queue admits it, in turn with other accounts. */
const inQueue =
  (queue: RequestQueue) =>
  <A, E, R>(operation: Effect.Effect<A, E, R>) =>
    Effect.flatMap(CurrentPrincipal, (principal) => queue(accountOf(principal), operation))

/** The greatest answer with one credential that takes no memory of the budget. */
const maxUncountedBytes = 16 * 1024

/** The most characters of JSON that one turn of the event loop writes, and one more value. */
const turnLength = 65_536

/** Answers with values as JSON between two texts. Writes and encodes them in several turns if they are long. */
export const jsonInTurns = Effect.fnUntraced(function* (before: string, values: ReadonlyArray<object>, after: string) {
  const encoded: Array<Uint8Array> = []
  let text = before
  for (const [index, value] of values.entries()) {
    text += (index === 0 ? "" : ",") + JSON.stringify(value)
    if (text.length > turnLength) {
      encoded.push(Buffer.from(text))
      text = ""
      yield* Effect.yieldNow
    }
  }
  if (encoded.length === 0) return jsonResponse(text + after)
  return HttpServerResponse.uint8Array(Buffer.concat([...encoded, Buffer.from(text + after)]), { contentType })
})

/** Bytes of a credential's lists and of its other members that a page takes memory for from the start. */
const usualBytes = { lists: 512, others: 512 }

const defaultLimit = 50

/** Memory per byte of an answer's text: while it is built (rows, credentials and text), then until it is sent. */
const memoryPerByte = { building: 3.75, unsent: 2 }

const lengthOf = ({ body }: HttpServerResponse.HttpServerResponse) =>
  body._tag === "Uint8Array" ? body.contentLength : 0

/**
 * Makes an answer of about `bytes`, and holds memory for it until it is sent or its client has left. `make` gets a
 * function that takes memory for further bytes.
 */
const holdUntilSent = ({ hold }: MemoryBudget["Service"]) =>
  Effect.fnUntraced(function* <E, R>(
    request: HttpServerRequest.HttpServerRequest,
    bytes: number,
    make: (take: PageMemory["take"]) => Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
  ) {
    const { giveBack, take, tryTake } = hold(accountOf(yield* CurrentPrincipal), "page")
    const response = toServerResponse(request) as ServerResponse
    const takeText = (more: number) => take(memoryPerByte.building * more)
    const made = onEnd(Effect.andThen(takeText(bytes), make(takeText)), () => giveBack())
    return yield* Effect.flatMap(made, (answer) => {
      // How large an answer is shows only now.
      if (!tryTake(memoryPerByte.unsent * lengthOf(answer))) return Effect.fail(new ServiceUnavailable())
      if (response.destroyed) giveBack()
      else response.once("close", () => giveBack())
      return Effect.succeed(answer)
    })
  })

const contentType = "application/json"
const jsonResponse = (body: string, options: HttpServerResponse.Options.WithContentType = {}) =>
  HttpServerResponse.text(body, { contentType, ...options })

/** The body of an answer with one credential: `{ data: credential }` as JSON. */
export const credentialBody = (credential: Credential): string => JSON.stringify({ data: credentialJson(credential) })

/** Encodes a credential as the contract's schema does, but without interpreting the schema for every answer. */
const credentialJson = (credential: Credential) => {
  const json = membersOf<unknown>(credential)
  json.created_at = DateTime.formatIso(credential.created_at)
  return json
}

/** A `DateTime` serializes itself as the schema encodes it. */
const explanationResponse = ({ providers, ...rest }: Explanation) =>
  jsonInTurns(`{"data":${JSON.stringify(rest).slice(0, -1)},"providers":[`, providers, "]}}")

const encodeStatus = Schema.encodeUnknownSync(Schema.NullOr(CredentialStatus))

const deletedResponse = jsonResponse(JSON.stringify({ deleted: true }))

const maxIssues = 100

/** Lists how an order differs from the credentials of its workspace and provider, in at most `maxIssues` issues. */
const orderIssues = (ids: ReadonlyArray<string>, { foreign, missing }: OrderMismatch): ReadonlyArray<Issue> => {
  const listedForeign = foreign.slice(0, maxIssues)
  return [
    ...listedForeign.map((id) => ({ path: ["ids", ids.indexOf(id)], message: "is not one of these credentials" })),
    ...missing
      .slice(0, maxIssues - listedForeign.length)
      .map((id) => ({ path: ["ids"], message: `must have ${id} as well` }))
  ]
}

/**
 * Implements a group of a contract like `HttpApiBuilder.group`, but leaves only the group's middleware in the context
 * of its requests, because every request copies that context.
 */
export const group: typeof HttpApiBuilder.group = (api, identifier, build) =>
  Layer.effectContext(
    Effect.contextWith((context: Context.Context<never>) => {
      const { endpoints } = api.groups[identifier] as HttpApiGroup.Top
      const middlewares = Object.values(endpoints).flatMap((endpoint) => Array.from(endpoint.middlewares))
      const pickMiddlewares = Context.pick(Scope.Scope, ...middlewares)
      const layer = HttpApiBuilder.group(api, identifier, (handlers) => {
        const built = build(handlers)
        return (Effect.isEffect(built) ? Effect.provideContext(built, context) : built) as typeof built
      })
      return Effect.flatMap(Effect.scope, (scope) => Layer.buildWithScope(layer, scope)).pipe(
        Effect.updateContext(pickMiddlewares)
      )
    })
  )

export const layer = group(Api, "byok", (handlers) =>
  Effect.map(makeOperations, (operations) => handlers.handleAll(operations))
)
