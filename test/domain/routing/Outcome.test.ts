import { errorCodesIn, type Outcome, outcomeOf } from "../../../src/domain/routing/Outcome.ts"
import { assert, describe, it } from "../../support/it.ts"

const now = Date.UTC(2026, 10, 21, 12)

const outcome = (status: number | null, codes: ReadonlyArray<string> = [], retry_after: string | null = null) =>
  outcomeOf({ status, codes, retry_after }, now)

describe("what an upstream's answer says about the key", () => {
  it.each<[number | null, Outcome["_tag"]]>([
    [200, "Succeeded"],
    [204, "Succeeded"],
    [304, "Succeeded"],
    [399, "Succeeded"],
    [400, "RequestRefused"],
    [401, "Rejected"],
    [402, "QuotaExhausted"],
    [403, "Forbidden"],
    [404, "RequestRefused"],
    [408, "UpstreamFailed"],
    [413, "RequestRefused"],
    [422, "RequestRefused"],
    [429, "RateLimited"],
    [499, "RequestRefused"],
    [500, "UpstreamFailed"],
    [503, "UpstreamFailed"],
    [529, "UpstreamFailed"],
    [101, "UpstreamFailed"],
    [199, "UpstreamFailed"],
    [null, "UpstreamFailed"]
  ])("%s: %s", (status, tag) => {
    assert.strictEqual(outcome(status)._tag, tag)
  })

  it.each<[number, string, Outcome["_tag"]]>([
    [429, "insufficient_quota", "QuotaExhausted"],
    [400, "credit_balance_exhausted", "QuotaExhausted"],
    [400, "billing_hard_limit_reached", "QuotaExhausted"],
    [403, "quota_exceeded", "QuotaExhausted"],
    [403, "billing_error", "QuotaExhausted"],
    [401, "insufficient_quota", "QuotaExhausted"],
    [400, "invalid_api_key", "Rejected"],
    [400, "API_KEY_INVALID", "Rejected"],
    [403, "authentication_error", "Rejected"],
    [403, "permission_error", "Forbidden"],
    [429, "rate_limit_exceeded", "RateLimited"],
    [400, "constructor", "RequestRefused"],
    [422, "invalid_api_key", "RequestRefused"],
    [404, "insufficient_quota", "RequestRefused"],
    [422, "quota_exceeded", "RequestRefused"]
  ])("%i with the code %s: %s", (status, code, tag) => {
    assert.strictEqual(outcome(status, ["invalid_request_error", code])._tag, tag)
  })

  it.each<[string, ReadonlyArray<string>]>([
    [
      `{"error":{"code":"invalid_api_key","type":"invalid_request_error"}}`,
      ["invalid_api_key", "invalid_request_error"]
    ],
    [`{"type":"error","error":{"type":"authentication_error"}}`, ["authentication_error"]],
    [
      `[{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"},{"x":1}]}}]`,
      ["INVALID_ARGUMENT", "API_KEY_INVALID"]
    ],
    [`{"error":{"message":"your input was {\\"code\\":\\"invalid_api_key\\"}"}}`, []],
    [`{"input":{"error":{"code":"invalid_api_key"}}}`, []],
    [`{"code":"invalid_api_key"}`, []],
    [`{"error":"invalid_api_key"}`, []],
    [`"code":"invalid_api_key"`, []],
    ["", []]
  ])("has the codes of the error object, and none that a message repeats: %s", (body, codes) => {
    assert.deepStrictEqual(errorCodesIn(body), codes)
  })

  it.each([200, 408, 500])("%i says nothing by its codes", (status) => {
    assert.strictEqual(outcome(status, ["invalid_api_key", "insufficient_quota"])._tag, outcome(status)._tag)
  })

  it.each<[string | null, number | null]>([
    ["30", 30_000],
    [" 1 ", 1000],
    ["Sat, 21 Nov 2026 12:00:20 GMT", 20_000],
    ["0", null],
    ["Sat, 21 Nov 2026 11:00:00 GMT", null],
    ["soon", null],
    ["-1", null],
    ["", null],
    [null, null]
  ])("Retry-After: %s asks for a wait of %s ms", (header, retry_after) => {
    assert.deepStrictEqual(outcome(429, [], header), { _tag: "RateLimited", retry_after })
  })
})
