import { DateTime, Effect, Redacted } from "effect"
import { OutputFailed } from "./OutputFailed.ts"
import { printable } from "./printable.ts"
import { root } from "./Root.ts"
import { writeOut } from "./writeOut.ts"

type Value = string | number | boolean | null | ReadonlyArray<string> | Redacted.Redacted | DateTime.Utc
type Values = Readonly<Record<string, Value>>

const plain = (value: Value) =>
  Redacted.isRedacted(value) ? Redacted.value(value) : DateTime.isDateTime(value) ? DateTime.formatIso(value) : value

const record = (values: Values) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, plain(value)]))

const text = (value: Value) => (Array.isArray(value) ? JSON.stringify(value) : String(plain(value) ?? "-"))

const lines = (values: Values) => {
  const width = Math.max(...Object.keys(values).map((name) => name.length))
  return Object.entries(values)
    .map(([name, value]) => `${name.padEnd(width)}  ${printable(text(value))}`)
    .join("\n")
}

const toJson = (object: object) => printable(JSON.stringify(object))

/**
 * Prints one JSON object with `--json`, else the text for a person. A command that changed something says in `done`
 * what it did: if that cannot be printed, even because nobody reads it, the failure says so.
 */
export const printAs = Effect.fnUntraced(function* (object: object, text: string, done?: string) {
  const { json } = yield* root
  const written = yield* Effect.mapError(
    writeOut(`${json ? toJson(object) : text}\n`),
    ({ code }) => new OutputFailed({ code, done })
  )
  if (!written && done !== undefined) return yield* new OutputFailed({ code: "EPIPE", done })
})

/** Prints a result. This is where a new key is shown, once. */
export const print = (values: Values, done?: string) => printAs(record(values), lines(values), done)

/** Prints a list: a block per element, or one JSON object with the list as its only member. */
export const printList = (name: string, list: ReadonlyArray<Values>) =>
  printAs({ [name]: list.map(record) }, list.map(lines).join("\n\n"))

/**
 * Prints a list like `printList`, page by page: `read` passes each page to the function that it is given, until that
 * returns false because nobody reads the output any more.
 */
export const printPages = Effect.fnUntraced(function* <E, R>(
  name: string,
  read: (write: (page: ReadonlyArray<Values>) => Effect.Effect<boolean, OutputFailed>) => Effect.Effect<void, E, R>
) {
  const { json } = yield* root
  const separator = json ? "," : "\n\n"
  let isEmpty = true
  if (json) yield* writeOut(`{${JSON.stringify(name)}:[`)
  yield* read((page) => {
    const text = page.map((values) => (json ? toJson(record(values)) : lines(values))).join(separator)
    const before = isEmpty ? "" : separator
    isEmpty = false
    return writeOut(before + text)
  })
  if (json) yield* writeOut("]}\n")
  else if (!isEmpty) yield* writeOut("\n")
})
