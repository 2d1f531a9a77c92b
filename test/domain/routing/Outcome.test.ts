import { type Outcome, outcomeOf } from "../../../src/domain/routing/Outcome.ts"
import { maxBody } from "../../../src/domain/routing/providerErrors/UpstreamError.ts"
import { assert, describe, it } from "../../support/it.ts"

const now = Date.UTC(2026, 10, 21, 12)

const outcome = (status: number | null, body: unknown = null, retry_after: string | number | null = null) =>
  outcomeOf(
    {
      provider: "openai",
      status,
      body: typeof body === "string" || body === null ? body : JSON.stringify(body),
      retry_after
    },
    now
  )

describe("an upstream's answer, classified for the key", () => {
  it.each<[number, Outcome["_tag"]]>([
    [200, "Succeeded"],
    [204, "Succeeded"],
    [304, "Succeeded"],
    [399, "Succeeded"],
    [400, "RequestRefused"],
    [401, "Rejected"],
    [402, "QuotaExhausted"],
    [403, "Forbidden"],
    [404, "NotServed"],
    [405, "NotServed"],
    [408, "UpstreamFailed"],
    [410, "NotServed"],
    [412, "RequestRefused"],
    [413, "RequestRefused"],
    [422, "RequestRefused"],
    [424, "UpstreamFailed"],
    [429, "RateLimited"],
    [498, "UpstreamFailed"],
    [499, "RequestRefused"],
    [500, "UpstreamFailed"],
    [503, "UpstreamFailed"],
    [529, "UpstreamFailed"],
    [999, "UpstreamFailed"],
    [600, "UpstreamFailed"],
    [0, "UpstreamFailed"],
    [-1, "UpstreamFailed"],
    [101, "UpstreamFailed"],
    [199, "UpstreamFailed"]
  ])("with status %i and an unknown error is %s", (status, tag) => {
    assert.strictEqual(outcome(status)._tag, tag)
    assert.strictEqual(outcome(status, "<html>")._tag, tag)
    const isSuccess = status >= 200 && status < 400
    assert.strictEqual(outcome(status, { error: { code: "new" } })._tag, isSuccess ? "UpstreamFailed" : tag)
  })

  it("without a status is UpstreamFailed", () => {
    assert.strictEqual(outcome(null)._tag, "UpstreamFailed")
  })

  it.each<[unknown, Outcome["_tag"]]>([
    [{ error: { code: "rate_limit_exceeded" } }, "RateLimited"],
    [{ error: { code: "insufficient_quota" } }, "QuotaExhausted"],
    [{ type: "error", error: { type: "overloaded_error" } }, "UpstreamFailed"],
    [{ error: { code: 429, message: "slow down" } }, "RateLimited"],
    [{ error: { code: 401 } }, "Rejected"],
    ['data: {"error":{"code":"insufficient_quota"}}\n\n', "QuotaExhausted"],
    ['event: error\ndata: {"error":{"code":"insufficient_quota"}}\n\n', "QuotaExhausted"],
    [{ base_resp: { status_code: 0, status_msg: "success" } }, "Succeeded"],
    [{ error: null, status: "completed" }, "Succeeded"],
    [{ error: false }, "Succeeded"],
    [{ error: {} }, "Succeeded"],
    [{ error: "" }, "Succeeded"],
    [{ error: "overloaded" }, "UpstreamFailed"],
    [{ base_resp: { status_code: "0" } }, "Succeeded"],
    [{ id: "msg_1", type: "message", code: 500 }, "Succeeded"],
    ["text", "Succeeded"]
  ])("with status 200 and the body %j is %s: a stream may fail after its head", (body, tag) => {
    assert.strictEqual(outcome(200, body)._tag, tag)
  })

  it("reads no code but of the members that name an error, because a body may repeat the request", () => {
    for (const body of [
      { error: { message: '{"code":"insufficient_quota"}' } },
      { input: { error: { code: "insufficient_quota" } } },
      { error: { param: "insufficient_quota", details: "insufficient_quota" } },
      { error: "insufficient_quota" },
      '"code":"insufficient_quota"',
      [{}, { error: { code: "insufficient_quota" } }]
    ]) {
      assert.strictEqual(outcome(429, body)._tag, "RateLimited", JSON.stringify(body))
    }
    for (const body of [
      { error: { code: "Insufficient_Quota" } },
      { error: { type: "insufficient_quota", code: null } },
      [{ error: { code: "insufficient_quota" } }],
      { code: "insufficient_quota" }
    ]) {
      assert.strictEqual(outcome(429, body)._tag, "QuotaExhausted", JSON.stringify(body))
    }
  })

  it("reads no more than the first characters of a body", () => {
    const padded = (length: number) => `{"error":{"code":"insufficient_quota"}}`.padEnd(length)
    assert.strictEqual(outcome(429, padded(maxBody))._tag, "QuotaExhausted")
    assert.strictEqual(outcome(429, `${" ".repeat(maxBody)}${padded(0)}`)._tag, "RateLimited", "control")
  })

  it("takes the wait from the header, or else from the error", () => {
    const body = { error: { code: 429, details: [{ retryDelay: "26s" }] } }
    assert.deepStrictEqual(outcome(429, body), { _tag: "RateLimited", retry_after: 26_000 })
    assert.deepStrictEqual(outcome(429, body, "5"), { _tag: "RateLimited", retry_after: 5000 })
    assert.deepStrictEqual(outcome(429, body, "soon"), { _tag: "RateLimited", retry_after: 26_000 })
    assert.deepStrictEqual(outcome(429, null, 7), { _tag: "RateLimited", retry_after: 7000 })
  })

  it.each([
    [{ error: { code: "context_length_exceeded" } }, "context_length_exceeded"],
    [{ error: { code: null, type: "invalid_request_error" } }, "invalid_request_error"],
    [{ error: { code: "x".repeat(65), type: "short" } }, "short"],
    [{ error: { code: "two words", type: "ünïcode" } }, null],
    [{ error: { message: "repeats a prompt" } }, null],
    [null, null]
  ])("that blames the request shows a plain code, and never a message: %j", (body, code) => {
    assert.deepStrictEqual(outcome(422, body), { _tag: "RequestRefused", answer: { status: 422, code } })
  })
})
