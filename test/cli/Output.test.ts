import { Writable } from "node:stream"
import { Effect } from "effect"
import { lines, printable, StandardStreams, writeOut } from "../../src/cli/Output.ts"
import { text } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

describe("printed output (F15)", () => {
  it.each([
    ["an escape sequence", "a\u001b[2Jb", String.raw`a\u001b[2Jb`],
    ["a line break", "a\r\nb", String.raw`a\u000d\u000ab`],
    ["a C1 control", "\u009b2J", String.raw`\u009b2J`],
    ["DEL", "\u007f", String.raw`\u007f`],
    ["Unicode's line ends", "\u2028\u2029", String.raw`\u2028\u2029`],
    ["controls of the direction of text", "a\u202eb\u2066c\u200f\u061c", String.raw`a\u202eb\u2066c\u200f\u061c`],
    ["letters of any script, emoji and blanks", "Søren 株 👩‍👩‍👧 \u00a0", "Søren 株 👩‍👩‍👧 \u00a0"]
  ])("escapes what could control a terminal, and nothing else: %s", (_, given, expected) => {
    assert.strictEqual(printable(given), expected)
    assert.strictEqual(lines({ name: given, deleted_at: null }), `name        ${expected}\ndeleted_at  -`)
  })

  it.prop("has no control character, and escaping keeps the meaning of JSON", [text(0, 40)], ([given]) => {
    const shown = printable(JSON.stringify({ given }))
    assert.notMatch(shown, /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u)
    assert.deepStrictEqual(JSON.parse(shown), { given })
  })

  it.effect.prop("has no such character if a command writes a text as it is", [text(0, 40)], function* ([given]) {
    const chunks: Array<string> = []
    const stdout = new Writable({ write: (part, _encoding, written) => (chunks.push(String(part)), written()) })
    yield* Effect.provideService(writeOut(`${given}\n`), StandardStreams, { ...process, stdout } as never)
    const written = chunks.join("")
    assert.notMatch(written, /(?![\t\n\r])[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u)
    assert.strictEqual(
      written.replace(/\\u([0-9a-f]{4})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16))),
      `${given}\n`
    )
  })
})
