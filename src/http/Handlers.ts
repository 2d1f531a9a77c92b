import { toServerResponse } from "@effect/platform-node/NodeHttpServerRequest"
import type { ServerResponse } from "node:http"
import { Context, type DateTime, Effect, Exit, Layer, Schema, Scope } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiBuilder, type HttpApiGroup } from "effect/http-api"
import { Api } from "../contract/TenantsApi.ts"
import { type Credential, membersOf } from "../domain/Credential.ts"
import type { CredentialChanges } from "../domain/CredentialChanges.ts"
import { InvalidParams, StoredKeyUnreadable } from "../domain/Errors.ts"
import type { CredentialId, IdempotencyKey } from "../domain/Identifiers.ts"
import type { Issue } from "../domain/Issue.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import { accountOf, CurrentPrincipal } from "../domain/Principal.ts"
import type { PlanRequest } from "../domain/routing/RoutingRequest.ts"
import { Credentials, type ListRequest, type OrderRequest } from "../port/Credentials.ts"
import { Events } from "../port/Events.ts"
import { Explanations } from "../port/Explanations.ts"
import type { OrderMismatch, PageMemory } from "../port/CredentialRepository.ts"
import { type RequestQueue, RequestQueues, untilStarted } from "../runtime/FairQueue.ts"
import { MemoryBudget } from "../runtime/MemoryBudget.ts"
import { cutOff } from "./Connection.ts"
import { CredentialStatus } from "../domain/routing/CredentialStatus.ts"

const twoDigits = Array.from({ length: 60 }, (_, n) => String(n).padStart(2, "0"))
let cachedDate = { day: Number.NaN, text: "" }

/** Formats ISO 8601, caching the date: the times on a page are mostly of few days. */
const formatIso = ({ epochMilliseconds: at }: DateTime.Utc) => {
  const day = Math.floor(at / 86_400_000)
  if (day !== cachedDate.day) cachedDate = { day, text: new Date(at).toISOString().slice(0, -"00:00:00.000Z".length) }
  const rest = at - day * 86_400_000
  const digits = (unit: number) => twoDigits[Math.floor(rest / unit) % 60]
  return `${cachedDate.text}${digits(3_600_000)}:${digits(60_000)}:${digits(1000)}.${String(rest % 1000).padStart(3, "0")}Z`
}

/** Encodes a credential as the contract's schema does, without interpreting the schema for every answer. */
const credentialJson = (credential: Credential) => {
  const json = membersOf<unknown>(credential)
  json.created_at = formatIso(credential.created_at)
  return json
}

export const credentialBody = (credential: Credential): string => JSON.stringify({ data: credentialJson(credential) })

const encodeStatus = Schema.encodeUnknownSync(Schema.NullOr(CredentialStatus))

const contentType = "application/json"
const json = (body: string, options: HttpServerResponse.Options.WithContentType = {}) =>
  HttpServerResponse.text(body, { contentType, ...options })

const single = (credential: Credential) => json(credentialBody(credential))

const defaultLimit = 50

/** The usual size of the lists in a credential, and the maximum size of its other members, in bytes. */
const usualListBytes = 4 * 1024
const maxOtherBytes = 2 * 1024

/** Memory of an answer for each byte of its text: while it is built (rows, credentials and text), and until it is sent. */
const memoryPerByte = { building: 4, unsent: 2 }

const lengthOf = ({ body }: HttpServerResponse.HttpServerResponse) =>
  body._tag === "Uint8Array" ? body.contentLength : 0

/**
 * Reserves memory for an answer of `bytes` before `make` reads it. Releases the memory once the answer is sent or its client
 * has left. `make` gets a function that reserves memory for further bytes.
 */
export const reserveUntilSent = ({ admit }: MemoryBudget) =>
  Effect.fnUntraced(function* <E, R>(
    request: HttpServerRequest.HttpServerRequest,
    bytes: number,
    make: (admit: PageMemory["admit"]) => Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
  ) {
    const account_id = accountOf(yield* CurrentPrincipal)
    const response = toServerResponse(request) as ServerResponse
    const cut = () => cutOff(response.req.socket)
    const reservation = yield* admit(account_id, "page", memoryPerByte.building * bytes, cut)
    const admitMore: PageMemory["admit"] = (more) =>
      untilStarted((start) => {
        if (reservation.grow(memoryPerByte.building * more, start)) start()
        return true
      })
    return yield* Effect.onExit(Effect.interruptible(make(admitMore)), (exit) =>
      Effect.sync(() => {
        reservation.shrink(Exit.isSuccess(exit) ? memoryPerByte.unsent * lengthOf(exit.value) : 0)
        if (response.destroyed) reservation.release()
        else response.once("close", () => reservation.release())
      })
    )
  }, Effect.uninterruptible)

const deleted = json(JSON.stringify({ deleted: true }))

const maxIssues = 100

/** How an order differs from the credentials of its workspace and provider; at most 100 issues. */
const orderIssues = (ids: ReadonlyArray<string>, { foreign, missing }: OrderMismatch): ReadonlyArray<Issue> => {
  const first = foreign.slice(0, maxIssues)
  return [
    ...first.map((id) => ({ path: ["ids", ids.indexOf(id)], message: "is not one of these credentials" })),
    ...missing.slice(0, maxIssues - first.length).map((id) => ({ path: ["ids"], message: `must have ${id} as well` }))
  ]
}

/**
 * Implements a group of a contract like `HttpApiBuilder.group`, but leaves only the group's middleware in the context of its
 * requests, because every request copies that context.
 */
export const group: typeof HttpApiBuilder.group = (api, identifier, build) =>
  Layer.effectContext(
    Effect.contextWith((context: Context.Context<never>) => {
      const { endpoints } = api.groups[identifier] as HttpApiGroup.Top
      const middlewares = Object.values(endpoints).flatMap((endpoint) => Array.from(endpoint.middlewares))
      const ofGroup = Context.pick(Scope.Scope, ...middlewares)
      const layer = HttpApiBuilder.group(api, identifier, (handlers) => {
        const built = build(handlers)
        return (Effect.isEffect(built) ? Effect.provideContext(built, context) : built) as typeof built
      })
      return Effect.flatMap(Effect.scope, (scope) => Layer.buildWithScope(layer, scope)).pipe(
        Effect.updateContext(ofGroup)
      )
    })
  )

interface ById {
  readonly params: { readonly id: CredentialId }
}

type WithRequest<A> = A & { readonly request: HttpServerRequest.HttpServerRequest }

type ListQuery = Partial<ListRequest> & { readonly include?: "status" }

const inQueue =
  (queue: RequestQueue) =>
  <A, E, R>(operation: Effect.Effect<A, E, R>) =>
    Effect.flatMap(CurrentPrincipal, (principal) => queue(accountOf(principal), operation))

/** The operations for the `CurrentPrincipal`. They only translate between the contract and the services. */
export const makeOperations = Effect.gen(function* () {
  const credentials = yield* Credentials
  const { explainedBody, status, statuses } = yield* Explanations
  const events = yield* Events
  const { reads, writes } = yield* RequestQueues
  const withReservation = reserveUntilSent(yield* MemoryBudget)
  const [reading, writing] = [inQueue(reads), inQueue(writes)]
  const list = Effect.fnUntraced(function* (query: ListQuery, admit: PageMemory["admit"]) {
    const { include, ...page } = { offset: 0, limit: defaultLimit, ...query }
    const memory: PageMemory = { reserved: page.limit * usualListBytes, admit }
    const { credentials: listed, total_count } = yield* reading(credentials.list({ ...page, memory }))
    const data = listed.map(credentialJson)
    if (include !== undefined) {
      const shown = yield* reading(statuses(listed))
      data.forEach((json, index) => Object.assign(json, { status: encodeStatus(shown[index]) }))
    }
    return json(JSON.stringify({ data, total_count }))
  })
  return {
    create: ({
      headers: { "idempotency-key": idempotency_key },
      payload
    }: {
      readonly headers: { readonly "idempotency-key"?: IdempotencyKey }
      readonly payload: NewCredential
    }) =>
      Effect.map(writing(credentials.create(payload, idempotency_key)), ({ credential, replayed }) =>
        json(credentialBody(credential), {
          status: 201,
          ...(replayed ? { headers: { "idempotent-replayed": "true" } } : {})
        })
      ),
    list: ({ query, request }: WithRequest<{ readonly query: ListQuery }>) =>
      withReservation(request, (query.limit ?? defaultLimit) * (usualListBytes + maxOtherBytes), (admit) =>
        list(query, admit)
      ),
    order: ({ payload }: { readonly payload: OrderRequest }) =>
      writing(credentials.order(payload)).pipe(
        Effect.map((data) => ({ data })),
        Effect.catchTag("OrderRefused", (mismatch) => InvalidParams.of(...orderIssues(payload.ids, mismatch)))
      ),
    events: ({ query }: { readonly query: Partial<Parameters<typeof events.list>[0]> }) =>
      Effect.map(reading(events.list({ limit: defaultLimit, ...query })), (data) => ({ data })),
    plan: ({ payload, request }: WithRequest<{ readonly payload: PlanRequest }>) =>
      withReservation(request, 0, (admit) =>
        Effect.map(reading(explainedBody(payload, { reserved: 0, admit })), (bytes) =>
          HttpServerResponse.uint8Array(bytes, { contentType })
        )
      ),
    get: ({ params }: ById) => Effect.map(credentials.get(params.id), single),
    status: ({ params }: ById) => Effect.map(reading(status(params.id)), (data) => ({ data })),
    update: ({ params, payload }: ById & { readonly payload: CredentialChanges }) =>
      Effect.map(
        Effect.catchTag(writing(credentials.update(params.id, payload)), "StoredKeyUnusable", (unusable) =>
          Effect.andThen(Effect.logError(unusable.message), new StoredKeyUnreadable())
        ),
        single
      ),
    delete: ({ params }: ById) => Effect.as(writing(credentials.delete(params.id)), deleted)
  }
})

export const layer = group(Api, "byok", (handlers) =>
  Effect.map(makeOperations, (operations) => handlers.handleAll(operations))
)
