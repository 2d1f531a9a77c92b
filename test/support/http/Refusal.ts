import { assert } from "@effect/vitest"
import type { Answer } from "./RawConnection.ts"

export interface Issue {
  readonly path: ReadonlyArray<string | number>
  readonly message: string
}

/** Every error the service answers with: its status and its sentence (section 7, D2, D3, D4, D9, D10, D11, D14). */
export const refusals = {
  InvalidParams: [400, "Invalid request parameters"],
  MissingKey: [401, "Missing Authentication header"],
  InvalidKey: [401, "Invalid API key"],
  Forbidden: [403, "Only management keys can perform this operation"],
  NotFound: [404, "Resource not found"],
  MethodNotAllowed: [405, "Method not allowed"],
  RequestTimeout: [408, "Request timeout"],
  Conflict: [409, "Idempotency key reused with another request"],
  CredentialDeleted: [409, "The credential of this request was deleted"],
  StoredKeyUnreadable: [409, "The stored key cannot be opened, so this credential can only be renamed or deleted"],
  PayloadTooLarge: [413, "Request payload too large"],
  ExpectationFailed: [417, "Expectation failed"],
  HeadersTooLarge: [431, "Request header fields too large"],
  InternalError: [500, "Internal Server Error"],
  ServiceUnavailable: [503, "Service temporarily unavailable"]
} as const
export type Refusal = keyof typeof refusals

/** The whole body of an error, byte for byte. */
export const envelope = (refusal: Refusal, metadata?: object): string => {
  const [code, message] = refusals[refusal]
  return JSON.stringify({ error: { code, message, ...(metadata && { metadata }) } })
}

/** Requires the headers that every answer has (D12). */
export const assertHeaders = ({ headers }: Answer) => {
  assert.strictEqual(headers["content-type"], "application/json")
  assert.strictEqual(headers["cache-control"], "no-store")
  assert.match(headers["x-request-id"] ?? "", /^[A-Za-z0-9._-]{1,128}$/)
}

/** Requires that the answer is exactly this error: status, body and headers. */
export const assertRefused = (answer: Answer, refusal: Refusal, metadata?: object) => {
  assert.strictEqual(answer.body, envelope(refusal, metadata))
  assert.strictEqual(answer.status, refusals[refusal][0])
  assertHeaders(answer)
}

/** Requires that the answer is a 400 with exactly these issues (D7). */
export const assertInvalid = (answer: Answer, ...issues: ReadonlyArray<Issue>) =>
  assertRefused(answer, "InvalidParams", { issues })
