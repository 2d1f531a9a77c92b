import { assert } from "@effect/vitest"
import { Arbitrary, Effect, Exit, Redacted } from "effect"
import { elementOf, integer } from "./arbitraries.ts"

/** Requests as they are sent, with some members at any depth that have another value, miss or are unknown. */
export const changed = (values: ReadonlyArray<unknown>, given: object) => {
  const places = Arbitrary.all({
    path: integer(0, 40),
    value: elementOf(values),
    removed: elementOf([false, false, true])
  })
  return Arbitrary.map(Arbitrary.array(places, { maxLength: 3 }), (changes) => {
    const made = structuredClone(given)
    for (const { path, removed, value } of changes) {
      const owners: Array<object> = []
      const collect = (owner: object) => {
        owners.push(owner)
        for (const one of Object.values(owner)) if (typeof one === "object" && one !== null) collect(one as object)
      }
      collect(made)
      const owner = owners[path % owners.length] ?? made
      const names = [...Object.keys(owner), ...(Array.isArray(owner) ? [] : ["zdr", "more"])]
      const name = names[path % Math.max(1, names.length)] ?? "0"
      if (removed) Reflect.deleteProperty(owner, name)
      else Reflect.set(owner, name, structuredClone(value))
    }
    // What JSON can say.
    return JSON.parse(JSON.stringify(made)) as unknown
  })
}

/** As text, in which the order of members does not count. */
const shown = (decoded: unknown): string =>
  JSON.stringify(decoded, (_, value: unknown) => {
    if (Redacted.isRedacted(value)) return { hidden: Redacted.value(value) }
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value
    return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
  })

type Decode = (given: unknown) => unknown

export type PlainDecoding = readonly [
  whole: object,
  given: Arbitrary.Arbitrary<unknown>,
  plain: Decode,
  decode: Decode,
  most?: number
]

/**
 * Asserts that what is decoded by hand, which leaves no more than a part of what is valid, is what the schema decodes. Of
 * `whole`, each member is tried with each value.
 */
export const decodesAs = Effect.fnUntraced(function* (
  values: ReadonlyArray<unknown>,
  ...[whole, given, plain, decode, most = 0.2]: PlainDecoding
) {
  let [taken, left] = [0, 0]
  const isSame = (input: unknown) => {
    const found = plain(input)
    const decoded = decode(input) as Exit.Exit<unknown, unknown>
    if (found === undefined) left += Number(Exit.isSuccess(decoded))
    else taken += 1
    return found === undefined || (Exit.isSuccess(decoded) && shown(found) === shown(decoded.value))
  }
  for (const name of Object.keys(whole)) {
    for (const value of values) assert.isTrue(isSame({ ...whole, [name]: value }), `${name}: ${String(value)}`)
  }
  const checked = yield* Arbitrary.checkEffect(given, isSame, { runs: 4_000 })
  assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
  assert.isAbove(taken, 1_000)
  assert.isBelow(left, taken * most, "accepted by the schema alone")
})
