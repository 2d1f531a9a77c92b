import { assert } from "@effect/vitest"
import { HTTPClient, OpenRouter } from "@openrouter/sdk"
import { OpenRouterError } from "@openrouter/sdk/models/errors"
import { Effect } from "effect"
import { TestService } from "./TestService.ts"

/** The official client under an API key. It repeats nothing. */
export const sdkWith = Effect.fnUntraced(function* (apiKey: string) {
  const { url } = yield* TestService
  return new OpenRouter({ apiKey, serverURL: `${url}/api/v1`, retryConfig: { strategy: "none" } })
})

/** The official client with its own way to retry, where the first answer is lost behind the service, and all answers. */
export const sdkThroughLoss = Effect.fnUntraced(function* (apiKey: string) {
  const { url } = yield* TestService
  const answers: Array<{ readonly status: number; readonly body: string; readonly replayed: string | null }> = []
  const httpClient = new HTTPClient({
    fetcher: async (request) => {
      const answer = await fetch(request as Request)
      const replayed = answer.headers.get("idempotent-replayed")
      answers.push({ status: answer.status, body: await answer.clone().text(), replayed })
      return answers.length > 1 ? answer : new Response("{}", { status: 502, headers: { "retry-after-ms": "1" } })
    }
  })
  return { answers, client: new OpenRouter({ apiKey, serverURL: `${url}/api/v1`, httpClient }) }
})

/** A call and the service's answer, success or failure. */
export const call = <A>(answer: () => Promise<A>) =>
  Effect.tryPromise({
    try: answer,
    catch: (error) => {
      if (error instanceof OpenRouterError) return error
      throw error
    }
  })

/** The request fails with this class, status and message. */
export const failsWith = <E extends OpenRouterError>(
  request: Effect.Effect<unknown, OpenRouterError>,
  expected: abstract new (...args: ReadonlyArray<never>) => E,
  statusCode: number,
  message: string = ""
) =>
  Effect.gen(function* () {
    const error = yield* Effect.flip(request)
    if (!(error instanceof expected)) return assert.fail(`${error.name} is not the expected class`)
    assert.strictEqual(error.statusCode, statusCode)
    assert.include(error.body, message)
    return error
  })
