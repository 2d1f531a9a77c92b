import { isUtf8 } from "node:buffer"
import { type Entry, refusedEntry } from "./Entry.ts"
import { isBlank } from "./isBlank.ts"
import type { Line } from "./readLines.ts"

const parsed = (line: number, text: string): Entry => {
  try {
    return { line, body: JSON.parse(text) }
  } catch {
    return refusedEntry(line, "must be valid JSON")
  }
}

/** Reads a record from each line of JSON; blank lines are passed over. */
export async function* jsonEntries(lines: AsyncIterable<Line>): AsyncGenerator<Entry> {
  for await (const { bytes, number } of lines) {
    if (bytes === undefined) yield refusedEntry(number, "must have at most 256 KiB")
    else if (!isUtf8(bytes)) yield refusedEntry(number, "must be UTF-8")
    else if (!isBlank(bytes)) yield parsed(number, bytes.toString("utf8"))
    bytes?.fill(0)
  }
}
