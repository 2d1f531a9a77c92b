import type { ServerResponse } from "node:http"
import { Duration, Effect, Exit, type Scope } from "effect"
import { InvalidParams, ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import { outcomeNames } from "../domain/routing/Outcome.ts"
import type { Exclusion, ProviderPlan } from "../domain/routing/Plan.ts"
import { type AttemptRequest, decodeReport, NotForRouting } from "../contract/attempts.ts"
import { hashApiKey } from "../runtime/ApiKey.ts"
import { MemoryBudget } from "../runtime/MemoryBudget.ts"
import { onEnd } from "../runtime/onEnd.ts"
import { workspaceIssue } from "../service/credentials/Ownership.ts"
import { Attempts, type UnknownAttempt } from "../service/routing/Attempts.ts"
import { tooManyCredentials } from "../service/routing/Pools.ts"
import type { NextAttempt, OpenAttempt } from "../service/routing/NextAttempt.ts"
import { type PlanFailure, UnknownApiKey } from "../service/routing/RouterErrors.ts"
import type { RouterRequest } from "../service/routing/RouterRequest.ts"
import { TokensOnly } from "../service/tokens/Tokens.ts"

/** Makes the operations on attempts: from decoded requests to answers in JSON. */
export const makeAttempts = Effect.gen(function* () {
  const attempts = yield* Attempts
  const { hold } = yield* MemoryBudget
  const tokensOnly = yield* TokensOnly

  const recordAll = (reports: ReadonlyArray<unknown>) => Effect.forEach(reports, recordOne)

  /** Records a report; its result is the outcome, or the error that refuses it alone. */
  const recordOne = (input: unknown) =>
    Effect.match(Effect.flatMap(decodeReport(input), attempts.report), {
      onSuccess: (outcome) => ({ outcome: outcomeNames[outcome._tag] }),
      onFailure: (failure) => ({
        error: (failure._tag === "UnknownAttempt" ? InvalidParams.of(unknownAttempt(["attempt"])) : failure).error
      })
    })

  /** Encodes the verdict on each credential. Holds memory for the text until the response closes. */
  const encodeVerdicts = Effect.fnUntraced(function* (
    { credentials, plan, request }: NextAttempt,
    response: ServerResponse
  ) {
    const { giveBack, take } = hold(request.account_id, "gateway")
    yield* take(verdictBytes * credentials)
    const encoding = Effect.suspend(() =>
      Effect.forEach(plan().providers, (provider) => Effect.as(Effect.yieldNow, JSON.stringify(verdictsJson(provider))))
    )
    const joined = Effect.map(encoding, (texts) => `[${texts.join()}]`)
    return yield* onEnd(Effect.interruptible(joined), (exit) => {
      if (Exit.isFailure(exit) || response.destroyed) return giveBack()
      giveBack(unsentBytesPerCharacter * exit.value.length)
      response.once("close", () => giveBack())
    })
  }, Effect.uninterruptible)

  const next = Effect.fnUntraced(function* (
    { after, explain, freshness_ms, reports, request_id, ...rest }: typeof AttemptRequest.Type,
    response: ServerResponse
  ): Effect.fn.Return<string, PlanFailure | UnknownAttempt | InvalidParams | ServiceUnavailable, Scope.Scope> {
    if (tokensOnly && rest.keys === "as_stored") return yield* tokensRequired
    const reportResults = reports.length === 0 ? {} : { reports: yield* recordAll(reports) }
    const freshness = freshness_ms === 0 ? "now" : Duration.millis(freshness_ms)
    const request = yield* routerRequest(rest)
    const { next, outcome, text } = yield* attempts.next(request, { after, freshness, request_id })
    if (rest.credential_id !== undefined && next?.credentials === 0) return yield* credentialNotTargeted
    const body = JSON.stringify({
      data: {
        outcome: outcome === undefined ? null : outcomeNames[outcome._tag],
        next: next?.attempt === undefined ? null : attemptJson(next.attempt, text),
        retry_at: isoTime(next?.retry_at ?? null),
        ...reportResults
      }
    })
    // Without an attempt, the verdicts say why. Appends their text to the object `data`, without encoding it again.
    return next !== undefined && (explain || next.attempt === undefined)
      ? `${body.slice(0, -2)},"providers":${yield* encodeVerdicts(next, response)}}}`
      : body
  }, Effect.scoped)

  return {
    next: (
      asked: typeof AttemptRequest.Type,
      response: ServerResponse
    ): Effect.Effect<string, InvalidParams | Unauthorized | NotForRouting | ServiceUnavailable> =>
      Effect.mapError(next(asked, response), (error) => {
        switch (error._tag) {
          case "UnknownApiKey":
            return Unauthorized.invalid()
          case "ApiKeyMayNotRoute":
            return new NotForRouting()
          case "UnknownWorkspace":
            return InvalidParams.of(
              asked.workspace_id === null ? noDefaultWorkspace : workspaceIssue(asked.workspace_id)
            )
          case "TooManyCredentials":
            return InvalidParams.of(tooManyCredentials)
          case "UnknownAttempt":
            return InvalidParams.of(unknownAttempt(["after", "attempt"]))
          case "PoolsUnavailable":
            return new ServiceUnavailable()
          default:
            return error
        }
      }),
    report: (reports: ReadonlyArray<unknown>) =>
      Effect.map(recordAll(reports), (results) => JSON.stringify({ data: { reports: results } }))
  }
})

type Routed = Omit<typeof AttemptRequest.Type, "after" | "explain" | "freshness_ms" | "reports" | "request_id">

/** The request to route: of the account that it names, or of the one that its API key names. */
const routerRequest = ({
  account_id,
  api_key,
  workspace_id,
  ...rest
}: Routed): Effect.Effect<RouterRequest, UnknownApiKey> => {
  const api_key_hash = api_key === undefined ? rest.api_key_hash : hashApiKey(api_key)
  const request = { ...rest, ...(workspace_id === null ? {} : { workspace_id }) }
  if (account_id !== undefined) return Effect.succeed({ ...request, account_id, api_key_hash })
  return api_key_hash === null ? Effect.fail(new UnknownApiKey()) : Effect.succeed({ ...request, api_key_hash })
}

const isoTime = (at: number | null) => (at === null ? null : new Date(at).toISOString())

/** An attempt with the provider key, unless its step is shared. */
const attemptJson = ({ lease, step }: OpenAttempt, attempt: string | undefined) => {
  if (lease === undefined) {
    return { attempt, step: "shared", provider: step.provider, credential_id: null, label: null, region: null }
  }
  const { credential_id, keys, label, provider, region } = lease.terms
  const { token } = lease
  const keyForm = {
    key_kind: token === undefined ? "stored" : "token",
    key_expires_at: isoTime(token?.expires_at ?? null),
    cloud: token?.cloud ?? null
  }
  const ownAttempt = { attempt, step: "own", provider, credential_id, label, region, key: lease.text() }
  return keys === "tokens" ? { ...ownAttempt, ...keyForm } : ownAttempt
}

const exclusionJson = (exclusion: Exclusion) =>
  exclusion.reason === "parked" ? { ...exclusion, until: isoTime(exclusion.until) } : exclusion

const verdictsJson = ({ credentials, ...rest }: ProviderPlan) => ({
  ...rest,
  credentials: credentials.map((verdict) => ({ ...verdict, exclusions: verdict.exclusions.map(exclusionJson) }))
})

const unknownAttempt = (path: ReadonlyArray<string>) => ({
  path,
  message: "must be the attempt of an answer within the last hour, for the same account"
})

/** The issue of an account that is unknown, or has no default workspace any more. */
const noDefaultWorkspace = {
  path: ["account_id"],
  message: "is no account, or its default workspace was deleted: then workspace_id must name another one"
}

const tokensRequired = InvalidParams.of({
  path: ["keys"],
  message: "must be tokens: TOKENS_ONLY lets no other form out"
})

const credentialNotTargeted = InvalidParams.of({
  path: ["credential_id"],
  message: "must be a credential of the workspace, and its provider one of targets"
})

/** Approximate memory of the verdict on one credential while verdicts are encoded, in bytes. */
const verdictBytes = 1000

/** Memory for each character of encoded verdicts until they are sent, in bytes. */
const unsentBytesPerCharacter = 4
