import { Arbitrary } from "effect"
import { DatabaseFailure } from "../../src/port/DatabaseFailure.ts"
import { elementOf, oneOf } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const characters = Array.from("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
const lettersOf = (length: number) =>
  Arbitrary.map(Arbitrary.array(elementOf(characters), { minLength: length, maxLength: length }), (all) => all.join(""))

/** Classes of PostgreSQL's manual, appendix A. */
const classes = (
  "00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 10 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 39 3B 3D 3F 40 42 44 53 54 55 57 58 " +
  "72 HV P0 XX"
).split(" ")

/** A code of a known class, or any five characters. */
const anyCode = oneOf(
  Arbitrary.flatMap(elementOf(classes), (name) => Arbitrary.map(lettersOf(3), (rest) => name + rest)),
  lettersOf(5),
  elementOf(["55000", "55006", "55P02", "55P03", "55P04", "25006", "25P01", "25P02", "25P03", "25P04"])
)

const failureOf = (sqlstate: string | undefined, kind = "UnknownError") =>
  new DatabaseFailure({ kind, sqlstate, constraint: undefined })

const unavailable = new Set(["08", "40", "53", "57", "58", "55000", "55006", "55P03", "25006", "25P03", "25P04"])

describe("a failure of the database", () => {
  it.prop(
    "blames a value for codes of classes 22 and 23 only, and those never for the database",
    [anyCode],
    ([code]) => {
      const failure = failureOf(code)
      assert.strictEqual(failure.isFaultOfValue, ["22", "23"].includes(code.slice(0, 2)))
      assert.isFalse(failure.isFaultOfValue && failure.isUnavailable)
      assert.strictEqual(failure.isUnavailable, unavailable.has(code) || unavailable.has(code.slice(0, 2)))
      assert.isTrue(failure.isUnavailable || !failure.isTransient, "what is retried at once may be retried later")
    }
  )

  it.each([
    ["ECONNREFUSED", "ConnectionError"],
    ["EMFILE", "ConnectionError"],
    [undefined, "ConnectionError"],
    [undefined, "Deadline"]
  ])("with code %s and kind %s means that the database is unavailable", (code, kind) => {
    assert.isTrue(failureOf(code, kind).isUnavailable)
  })

  it.each([
    ["01000", "UnknownOutcome"],
    ["42P01", "SqlSyntaxError"],
    ["28P01", "AuthenticationError"],
    ["XX001", "UnknownError"],
    [undefined, "UnknownError"]
  ])("with code %s and kind %s needs somebody to act", (code, kind) => {
    const failure = failureOf(code, kind)
    assert.deepStrictEqual([failure.isUnavailable, failure.isFaultOfValue], [false, false])
  })
})
