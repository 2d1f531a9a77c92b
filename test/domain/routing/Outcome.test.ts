import { Arbitrary } from "effect"
import { errorCodesIn, type Outcome, outcomeOf } from "../../../src/domain/routing/Outcome.ts"
import { assert, describe, it } from "../../support/it.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"

const now = Date.UTC(2026, 10, 21, 12)

const bodyWith = ([type, code]: ReadonlyArray<string>) =>
  type === undefined ? null : JSON.stringify({ error: { type, code } })

const outcome = (status: number | null, codes: ReadonlyArray<string> = [], retry_after: string | null = null) =>
  outcomeOf({ status, body: bodyWith(codes), retry_after }, now)

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
    [404, "RequestRefused"],
    [408, "UpstreamFailed"],
    [413, "RequestRefused"],
    [422, "RequestRefused"],
    [429, "RateLimited"],
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
  ])("with status %i is %s", (status, tag) => {
    assert.strictEqual(outcome(status)._tag, tag)
  })

  it("without a status is UpstreamFailed", () => {
    assert.strictEqual(outcome(null)._tag, "UpstreamFailed")
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
  ])("with status %i and error code %s is %s", (status, code, tag) => {
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
    ]
  ])("with the body %s has the error codes %j", (body, codes) => {
    assert.deepStrictEqual(errorCodesIn(body), codes)
  })

  it.each([
    [`{"error":{"message":"your input was {\\"code\\":\\"invalid_api_key\\"}"}}`],
    [`{"input":{"error":{"code":"invalid_api_key"}}}`],
    [`{"code":"invalid_api_key"}`],
    [`{"error":"invalid_api_key"}`],
    [`"code":"invalid_api_key"`]
  ])("with the body %s has no error code, as it has none in an error object", (body) => {
    assert.deepStrictEqual(errorCodesIn(body), [])
  })

  it("with an empty body has no error code", () => {
    assert.deepStrictEqual(errorCodesIn(""), [])
  })

  it.each([200, 408, 500])("is not classified by error codes if the status is %i", (status) => {
    assert.strictEqual(outcome(status, ["invalid_api_key", "insufficient_quota"])._tag, outcome(status)._tag)
  })

  it.each<[string, number]>([
    ["30", 30_000],
    [" 1 ", 1000],
    ["33.5", 33_500],
    ["7.66", 7660],
    ["0.0001", 1],
    ["Sat, 21 Nov 2026 12:00:20 GMT", 20_000],
    ["Saturday, 21-Nov-26 12:00:20 GMT", 20_000],
    ["Sat Nov 21 12:00:20 2026", 20_000],
    ["Tue Dec  1 12:00:00 2026", 10 * 86_400_000],
    ["Friday, 21-Nov-76 12:00:00 GMT", Date.UTC(2076, 10, 21, 12) - now]
  ])("with Retry-After: %j asks for a wait of %i ms", (header, retry_after) => {
    assert.deepStrictEqual(outcome(429, [], header), { _tag: "RateLimited", retry_after })
  })

  it.each([
    ["Sat, 31 Feb 2027 12:00:00 GMT"],
    ["Sat, 21 Now 2026 12:00:20 GMT"],
    ["Sat, 21 Nov 2026 24:00:20 GMT"],
    ["sat, 21 nov 2026 12:00:20 gmt"],
    ["Sat, 21 Nov 2026 12:00:20 PST"],
    ["21 Nov 2026 12:00:20 GMT"],
    ["2026-11-21T12:00:20Z"],
    ["30, 30"],
    ["30s"],
    ["33."],
    [".5"],
    ["1e3"],
    ["0x10"],
    ["+7"],
    ["soon"],
    ["-1"],
    [""]
  ])("with Retry-After: %j, which is malformed, asks for no wait", (header) => {
    assert.deepStrictEqual(outcome(429, [], header), { _tag: "RateLimited", retry_after: null })
  })

  it.each([["Monday, 21-Nov-77 12:00:00 GMT"], ["0"], ["Sat, 21 Nov 2026 11:00:00 GMT"]])(
    "with Retry-After: %j, which is not in the future, asks for no wait",
    (header) => {
      assert.deepStrictEqual(outcome(429, [], header), { _tag: "RateLimited", retry_after: null })
    }
  )

  it("without Retry-After asks for no wait", () => {
    assert.deepStrictEqual(outcome(429, [], null), { _tag: "RateLimited", retry_after: null })
  })

  const waitFor = (header: string) => {
    const limited = outcome(429, [], header)
    return limited._tag === "RateLimited" ? limited.retry_after : assert.fail(limited._tag)
  }
  /** A time in the three forms of a date in HTTP. */
  const formsOf = (at: number): ReadonlyArray<string> => {
    const fixed = new Date(at).toUTCString()
    const [weekday = "", day = "", month = "", year = "", time = ""] = fixed.split(/,? /)
    const long = new Intl.DateTimeFormat("en", { weekday: "long", timeZone: "UTC" }).format(at)
    return [
      fixed,
      `${long}, ${day}-${month}-${year.slice(2)} ${time} GMT`,
      `${weekday} ${month} ${String(Number(day)).padStart(2)} ${time} ${year}`
    ]
  }
  const anySecond = integer(1, 20 * 365 * 86_400)

  it.prop(
    "asks for the wait of a Retry-After in any date format of HTTP or in decimal seconds",
    [anySecond],
    ([seconds]) => {
      const forms = formsOf(now + seconds * 1000)
      assert.deepStrictEqual(
        forms.map(waitFor),
        forms.map(() => seconds * 1000)
      )
      assert.strictEqual(waitFor(`${seconds}.25`), seconds * 1000 + 250)
    }
  )

  const edit = Arbitrary.all({ at: integer(0, 34), replaces: integer(0, 1), by: elementOf(["x", ".", "+", "e", "T"]) })
  it.prop("asks for no wait if one character of Retry-After is wrong", [anySecond, edit], ([seconds, edit]) => {
    for (const text of [...formsOf(now + seconds * 1000), `${seconds}`]) {
      const { at, by, replaces } = edit
      const place = 1 + (at % (text.length + 1))
      const edited = text.slice(0, place - 1) + by + text.slice(place - 1 + replaces)
      const isDecimal = /^\d/.test(edited) && by === "." && /\d$/.test(edited)
      if (edited !== text && !isDecimal) assert.isNull(waitFor(edited), edited)
    }
  })
})
