import { Console, DateTime, Effect, Redacted } from "effect"
import { root } from "./Root.ts"

type Value = string | boolean | null | Redacted.Redacted | DateTime.Utc
type Values = Readonly<Record<string, Value>>

const plain = (value: Value) =>
  Redacted.isRedacted(value) ? Redacted.value(value) : DateTime.isDateTime(value) ? DateTime.formatIso(value) : value

const record = (values: Values) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, plain(value)]))

const lines = (values: Values) => {
  const width = Math.max(...Object.keys(values).map((name) => name.length))
  return Object.entries(values).map(([name, value]) => `${name.padEnd(width)}  ${String(plain(value) ?? "-")}`)
}

/** Prints a result for a person, or as one JSON object with `--json`. This is where a new key is shown, once. */
export const print = Effect.fnUntraced(function* (values: Values) {
  const { json } = yield* root
  yield* Console.log(json ? JSON.stringify(record(values)) : lines(values).join("\n"))
})

/** Prints a list: a block for each element, or one JSON object with the list as its one member. */
export const printList = Effect.fnUntraced(function* (name: string, list: ReadonlyArray<Values>) {
  const { json } = yield* root
  yield* Console.log(
    json ? JSON.stringify({ [name]: list.map(record) }) : list.map((values) => lines(values).join("\n")).join("\n\n")
  )
})
