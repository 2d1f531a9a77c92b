import type { IncomingMessage, ServerResponse } from "node:http"
import { Effect, type Exit, Redacted, Schema } from "effect"
import { CredentialChanges, plainCredentialChanges } from "../domain/CredentialChanges.ts"
import type { CurrentCaller } from "../domain/CurrentCaller.ts"
import type { Conflict, InvalidParams, NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { CredentialId, IdempotencyKey, isStoredUuid } from "../domain/Identifiers.ts"
import { NewCredential, plainNewCredential } from "../domain/NewCredential.ts"
import * as AtHand from "../port/AtHand.ts"
import { MemoryBudget } from "../port/MemoryBudget.ts"
import { asCaller, Callers } from "./AuthenticationLive.ts"
import type { PlainAnswer } from "./Envelope.ts"
import { defaultLimit, makeHotOperations } from "./Handlers.ts"
import { hasPlainBody, jsonOf, makePlainAnswering, namesHost, onArrival, orElse } from "./plainRequests.ts"
import { withBody } from "./RequestDecodingLive.ts"
import { requestIdOf } from "./RequestHeaders.ts"

type Answering = Effect.Effect<PlainAnswer, InvalidParams | NotFound | Conflict | ServiceUnavailable, CurrentCaller>

interface Operation {
  readonly id: CredentialId | undefined
  readonly isSealed: boolean
  readonly reads: boolean
  readonly answer: (account_id: string) => Answering
}

const parseOptions = { errors: "all" } as const
const decodeAsNewCredential = Schema.decodeUnknownExit(NewCredential, parseOptions)
const decodeAsChanges = Schema.decodeUnknownExit(CredentialChanges, parseOptions)

const decodeNewCredential = orElse(plainNewCredential, decodeAsNewCredential)
const decodeChanges = orElse(plainCredentialChanges, decodeAsChanges)

const isIdempotencyKey = Schema.is(IdempotencyKey)

const collection = "/api/v1/byok"

const [offset, limit] = ["offset=(\\d{1,9})", "limit=(100|[1-9]\\d?)"]
/** A list with no other parameters than these, in either order, each within its bounds. */
const listing = new RegExp(`^${collection}(?:\\?(?:${offset}(?:&${limit})?|${limit}(?:&${offset})?))?$`)

/** The page that a list asks for, if it asks plainly. */
const pageOf = (url: string) => {
  const found = listing.exec(url)
  if (found === null) return undefined
  const [, before, behind, limit = behind, offset = before] = found
  return { offset: Number(offset ?? 0), limit: Number(limit ?? defaultLimit) }
}

const hasNoBody = ({ headers }: IncomingMessage) =>
  headers["content-length"] === undefined && headers["transfer-encoding"] === undefined

/** A token that cannot be of two headers, which Node joins with a comma. */
const authorization = /^Bearer ([!-+\--~]+)$/

const arriving = (source: IncomingMessage) =>
  Effect.callback<Buffer>((resume) =>
    onArrival(
      source,
      () => {},
      (body) => resume(Effect.succeed(body))
    )
  )

/**
 * Makes a function that takes creates, lists, updates and gets without the layers of the other routes: the contract's schemas, and
 * the operations behind its handlers. What is not plain about a request is left to those.
 */
export const makePlainOperations = Effect.gen(function* () {
  const answering = yield* makePlainAnswering
  const { create, get, list, update } = yield* makeHotOperations
  const { find } = yield* Callers
  const budget = yield* MemoryBudget

  const ofBody =
    <A>(
      source: IncomingMessage,
      decode: (input: unknown) => Exit.Exit<A, Schema.SchemaError>,
      use: (given: A) => Answering
    ) =>
    (account_id: string) =>
      withBody(budget, account_id, "body", source, arriving(source), (bytes) =>
        Effect.flatMap(jsonOf(bytes, decode), use)
      )

  const operationOf = (request: IncomingMessage, response: ServerResponse): Operation | undefined => {
    const { headers, method, url = "" } = request
    const page = method === "GET" && hasNoBody(request) ? pageOf(url) : undefined
    if (page !== undefined) return { id: undefined, isSealed: false, reads: true, answer: () => list(page, response) }
    if (url === collection) {
      const key = headers["idempotency-key"]
      if (method !== "POST" || !hasPlainBody(request) || !(key === undefined || isIdempotencyKey(key))) return undefined
      const answer = ofBody(request, decodeNewCredential, (given) => create(given, key))
      return { id: undefined, isSealed: false, reads: false, answer }
    }
    const name = url.slice(collection.length + 1)
    if (!url.startsWith(`${collection}/`) || !isStoredUuid(name)) return undefined
    const id = CredentialId.make(name, { disableChecks: true })
    if (method === "GET" && hasNoBody(request)) return { id, isSealed: false, reads: true, answer: () => get(id) }
    if (method !== "PATCH" || !hasPlainBody(request)) return undefined
    return { id, isSealed: true, reads: false, answer: ofBody(request, decodeChanges, (given) => update(id, given)) }
  }

  return (request: IncomingMessage, response: ServerResponse): boolean => {
    if (answering === undefined || !namesHost(request)) return false
    const [, token] = authorization.exec(request.headers.authorization ?? "") ?? []
    const operation = token === undefined ? undefined : operationOf(request, response)
    if (token === undefined || operation === undefined) return false
    const answered = AtHand.flatMap(find(Redacted.make(token), operation), (found) =>
      found.refused === undefined
        ? asCaller(found, operation.answer(found.caller.account_id))
        : Effect.succeed(found.refused)
    )
    answering(response, requestIdOf(request.headers["x-request-id"]), operation.reads, answered)
    return true
  }
})
