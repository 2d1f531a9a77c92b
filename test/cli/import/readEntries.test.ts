import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect } from "effect"
import { readEntries, type Format } from "../../../src/cli/import/readEntries.ts"
import { acceptedBody, bytes, elementOf, integer, text } from "../../support/memory/arbitraries.ts"

async function* inChunks(content: Buffer, size: number) {
  for (let start = 0; start < content.length; start += size) yield Buffer.from(content.subarray(start, start + size))
}

const collect = async <A>(all: AsyncIterable<A>) => {
  const found: Array<A> = []
  for await (const one of all) found.push(one)
  return found
}

const readAll = (content: string | Buffer, format: Format, size = 64 * 1024) =>
  Effect.promise(() => collect(readEntries(inChunks(Buffer.from(content as string), size), format, () => undefined)))

/** The lines of the records, and of those that are refused what is said. */
const outcome = (entries: ReadonlyArray<object>) =>
  entries.map((entry) => {
    const { issue, line } = entry as { readonly line: number; readonly issue?: { readonly message: string } }
    return issue === undefined ? line : [line, issue.message]
  })

const bodiesOf = (entries: ReadonlyArray<object>) => entries.map((entry) => Reflect.get(entry, "body") as unknown)

const columns = [
  "key",
  "provider",
  "name",
  "declared_region",
  "allowed_api_key_hashes",
  "allowed_models",
  "allowed_user_ids",
  "declared_zdr",
  "disabled",
  "is_fallback",
  "is_required",
  "is_byok_only"
]
const quoted = (cell: string) => `"${cell.replaceAll('"', '""')}"`
const cellOf = (value: unknown) =>
  value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value)
const csvOf = (bodies: ReadonlyArray<Record<string, unknown>>, end: string) =>
  [columns.join(), ...bodies.map((body) => columns.map((column) => quoted(cellOf(body[column]))).join())]
    .map((line) => line + end)
    .join("")

/** As CSV can say it: null, and a text that is empty, are not given. */
const sayable = (body: Record<string, unknown>) =>
  Object.fromEntries(
    columns.map((column) => [column, body[column]] as const).filter(([, value]) => cellOf(value) !== "")
  )

describe("the records of an import", () => {
  it.effect.prop(
    "are the same in JSON lines and in CSV, in chunks of any size, with either end of line (import)",
    [Arbitrary.array(acceptedBody(text(1, 40)), { maxLength: 6 }), integer(1, 200), elementOf(["\n", "\r\n"])],
    ([bodies, size, end]) =>
      Effect.gen(function* () {
        const wanted = bodies.map(sayable)
        const json = wanted.map((body) => JSON.stringify(body) + end).join("")
        assert.deepStrictEqual(bodiesOf(yield* readAll(json, "jsonl", size)), wanted)
        assert.deepStrictEqual(bodiesOf(yield* readAll(csvOf(wanted, end), "csv", size)), wanted)
      }),
    { arbitrary: { runs: 60 } }
  )

  it.effect.prop(
    "no bytes at all make it fail on JSON lines, and every line that is not blank has one result",
    [bytes(0, 200), integer(1, 50)],
    ([content, size]) =>
      Effect.gen(function* () {
        const lines = (yield* readAll(content, "jsonl", size)).map(({ line }) => line)
        const expected = content
          .toString("latin1")
          .replace(/^\u00ef\u00bb\u00bf/, "")
          .split("\n")
          .flatMap((line, index) => (/^[ \t\r]*$/.test(line) ? [] : [index + 1]))
        assert.deepStrictEqual(lines, expected)
      })
  )

  it.effect("a line that is too long, not UTF-8 or not JSON is an issue of that line", () =>
    Effect.gen(function* () {
      const long = `{"key":"${"k".repeat(256 * 1024)}"}`
      const longest = `{"key":"${"k".repeat(256 * 1024 - 11)}"}`
      const content = Buffer.concat([
        Buffer.from(`\ufeff{}\n${long}\n`),
        Buffer.from([0x22, 0xff, 0x22, 0x0a]),
        Buffer.from(`{\n \t\r\n${longest}\n${long}`)
      ])
      const expected = [
        1,
        [2, "must have at most 256 KiB"],
        [3, "must be UTF-8"],
        [4, "must be valid JSON"],
        6,
        [7, "must have at most 256 KiB"]
      ]
      for (const size of [7, 64 * 1024, content.length]) {
        assert.deepStrictEqual(outcome(yield* readAll(content, "jsonl", size)), expected)
      }
    })
  )

  it.effect("a quote that is wrong spoils its own line of CSV, and no other", () =>
    Effect.gen(function* () {
      const wrong = "must be CSV: a quote in it is not closed or not doubled"
      const content = [
        "provider,key,name",
        "groq,one,a",
        'groq,tw"o,b',
        "groq,three,c",
        'groq,"fo""ur\n5",d',
        'groq,"six',
        "groq,seven,g",
        "groq,eight",
        "",
        "groq,ten,j"
      ].join("\n")
      const entries = yield* readAll(content, "csv", 10)
      assert.deepStrictEqual(outcome(entries), [
        2,
        [3, wrong],
        4,
        5,
        [7, wrong],
        8,
        [9, "must have a cell for each column"],
        11
      ])
      assert.deepStrictEqual(bodiesOf(entries)[3], { provider: "groq", key: 'fo"ur\n5', name: "d" })
    })
  )

  it.effect("flags of spreadsheets are flags, and cells that are not JSON are left to the rules of create", () =>
    Effect.gen(function* () {
      const content = 'provider,key,disabled,allowed_models,name\ngroq,k,TRUE,"[""a""]",true\ngroq,k,yes,a,\n'
      assert.deepStrictEqual(bodiesOf(yield* readAll(content, "csv")), [
        { provider: "groq", key: "k", disabled: true, allowed_models: ["a"], name: "true" },
        { provider: "groq", key: "k", disabled: "yes", allowed_models: "a" }
      ])
    })
  )

  it.effect("a first line of CSV that does not name members is refused without repeating it", () =>
    Effect.gen(function* () {
      for (const [line, message] of [
        ["groq,sk-canary-canary", /^The first line of the CSV must name the columns, and column 1 is none of key, /],
        ["key,provider,sk-canary-canary", /column 3 is none of/],
        ["key,provider,key", /names column 3 twice/],
        ["provider,name", /must have a column key\./],
        ['"key', /must name the columns\./]
      ] as const) {
        const read = collect(readEntries(inChunks(Buffer.from(line), 9), "csv", () => undefined))
        const said = yield* Effect.promise(() => read.then(() => "nothing", String))
        assert.match(said.replace(/^\w+: /, ""), message)
        assert.notInclude(said, "canary")
      }
    })
  )
})
