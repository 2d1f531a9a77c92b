import { Arbitrary } from "effect"
import { retryAfterMillis } from "../../../src/domain/routing/RetryAfter.ts"
import { assert, describe, it } from "../../support/it.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"

const now = Date.UTC(2026, 10, 21, 12)

describe("when an upstream wants the next request", () => {
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
    ["Friday, 21-Nov-76 12:00:00 GMT", Date.UTC(2076, 10, 21, 12) - now],
    ["30, 30", 30_000],
    ["5, Sat, 21 Nov 2026 12:00:20 GMT", 20_000],
    ["Sat, 21 Nov 2026 12:00:20 GMT, Sat, 21 Nov 2026 12:00:20 GMT", 20_000],
    ["26s", 26_000],
    ["26.5s", 26_500],
    ["1m30s", 90_000],
    ["2h", 7_200_000],
    ["1h2m3.5s", 3_723_500],
    ["120ms", 120],
    [String(now / 1000 + 20), 20_000],
    [String(now + 20_000), 20_000]
  ])("with Retry-After: %j, asks for a wait of %i ms", (header, retry_after) => {
    assert.strictEqual(retryAfterMillis(header, now), retry_after)
  })

  it.each([
    ["Sat, 31 Feb 2027 12:00:00 GMT"],
    ["Sat, 21 Now 2026 12:00:20 GMT"],
    ["Sat, 21 Nov 2026 24:00:20 GMT"],
    ["sat, 21 nov 2026 12:00:20 gmt"],
    ["Sat, 21 Nov 2026 12:00:20 PST"],
    ["21 Nov 2026 12:00:20 GMT"],
    ["2026-11-21T12:00:20Z"],
    ["30 s"],
    ["s"],
    ["3s1m"],
    ["33."],
    [".5"],
    ["1e3"],
    ["0x10"],
    ["+7"],
    ["soon"],
    ["-1"],
    [""]
  ])("with Retry-After: %j, which is malformed, asks for no wait", (header) => {
    assert.isNull(retryAfterMillis(header, now))
  })

  it.each([["Monday, 21-Nov-77 12:00:00 GMT"], ["0"], ["0s"], ["Sat, 21 Nov 2026 11:00:00 GMT"], ["1700000000"]])(
    "with Retry-After: %j, which is not in the future, asks for no wait",
    (header) => {
      assert.isNull(retryAfterMillis(header, now))
    }
  )

  it("without Retry-After asks for no wait", () => {
    assert.isNull(retryAfterMillis(null, now))
  })

  it.each([[20], [0.5], ["20"]])("takes a number of seconds as a number too: %j", (value) => {
    assert.strictEqual(retryAfterMillis(value, now), Number(value) * 1000)
  })

  const waitFor = (header: string) => retryAfterMillis(header, now)
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
