import { Arbitrary, Effect } from "effect"
import { readEntries } from "../../src/cli/ImportFile.ts"
import { acceptedBody, bytes, elementOf, integer, text } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

async function* inChunks(content: Buffer, size: number) {
  for (let start = 0; start < content.length; start += size) yield Buffer.from(content.subarray(start, start + size))
}

const collect = async <A>(all: AsyncIterable<A>) => {
  const found: Array<A> = []
  for await (const one of all) found.push(one)
  return found
}

const readAll = (content: string | Buffer, size = 64 * 1024) =>
  Effect.promise(() => collect(readEntries(inChunks(Buffer.from(content as string), size), () => undefined)))

/** The lines of accepted records, and the issues of refused ones. */
const outcome = (entries: ReadonlyArray<object>) =>
  entries.map((entry) => {
    const { issue, line } = entry as { readonly line: number; readonly issue?: { readonly message: string } }
    return issue === undefined ? line : [line, issue.message]
  })

const bodiesOf = (entries: ReadonlyArray<object>) => entries.map((entry) => Reflect.get(entry, "body") as unknown)

describe("the reader of import files", () => {
  it.effect.prop(
    "reads one record from each line, for any chunk size, with LF or CRLF (import)",
    [Arbitrary.array(acceptedBody(text(1, 40)), { maxLength: 6 }), integer(1, 200), elementOf(["\n", "\r\n"])],
    function* ([bodies, size, end]) {
      const lines = bodies.map((body) => JSON.stringify(body) + end)
      assert.deepStrictEqual(bodiesOf(yield* readAll(lines.join(""), size)), JSON.parse(`[${lines.join()}]`))
    },
    { arbitrary: { runs: 60 } }
  )

  it.effect.prop(
    "returns one result for each line that is not blank, whatever bytes the file contains",
    [bytes(0, 200), integer(1, 50)],
    function* ([content, size]) {
      const lines = (yield* readAll(content, size)).map(({ line }) => line)
      const expected = content
        .toString("latin1")
        .replace(/^\u00ef\u00bb\u00bf/, "")
        .split("\n")
        .flatMap((line, index) => (/^[ \t\r]*$/.test(line) ? [] : [index + 1]))
      assert.deepStrictEqual(lines, expected)
    }
  )

  it.effect("reports an issue for each line that is too long, not UTF-8 or not JSON", function* () {
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
      assert.deepStrictEqual(outcome(yield* readAll(content, size)), expected)
    }
  })

  it.effect.each(["provider,key,name", '\ufeff"key";"provider"\r', "name\tkey\tprovider"])(
    "refuses the whole file if a CSV header is its first line, but only the header if it is a later line: %j",
    function* (header) {
      const read = collect(readEntries(inChunks(Buffer.from(`${header}\ngroq,sk-canary`), 9), () => undefined))
      const refused = yield* Effect.promise(() => read.then(() => "nothing", String))
      assert.match(refused, /Only JSON lines are imported: convert CSV to them first, .*docs\/commands\.md\.$/)
      assert.deepStrictEqual(outcome(yield* readAll(`{}\n${header}`)), [1, [2, "must be valid JSON"]])
    }
  )
})
