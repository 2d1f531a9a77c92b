import { isUtf8 } from "node:buffer"
import type { Issue } from "../domain/Issue.ts"
import { CommandFailed } from "./Output.ts"

/** A record of a file to import: the body of a create, or why it has none. */
export type Entry = { readonly line: number; readonly body: unknown } | { readonly line: number; readonly issue: Issue }

const refusedEntry = (line: number, message: string): Entry => ({ line, issue: { path: [], message } })

export const csvRefused = () =>
  new CommandFailed({
    message: "Only JSON lines are imported: convert CSV to them first, with the line of jq in docs/commands.md."
  })

/** A line with its terminator. Its bytes belong to the reader of the line, who wipes them. */
interface Line {
  readonly number: number
  readonly bytes: Buffer | undefined
}

/** As many bytes as a request body may have over HTTP (D9). */
const maxBytes = 256 * 1024

const newline = 10
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf])

const joined = (parts: ReadonlyArray<Buffer>) => {
  const [first] = parts
  if (parts.length === 1 && first !== undefined) return first
  const line = Buffer.concat(parts)
  for (const part of parts) part.fill(0)
  return line
}

/** Splits bytes into lines, with one chunk in memory, which is wiped. A byte order mark at the beginning is dropped. */
async function* readLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<Line> {
  let number = 1
  let length = 0
  let parts: Array<Buffer> = []
  const take = (): Line => {
    const bytes = length > maxBytes ? undefined : joined(parts)
    const hasMark = number === 1 && bytes?.subarray(0, 3).equals(byteOrderMark) === true
    parts = []
    length = 0
    return { number: number++, bytes: hasMark ? bytes.subarray(3) : bytes }
  }
  for await (const chunk of chunks) {
    for (let start = 0; start < chunk.length;) {
      const end = chunk.indexOf(newline, start)
      const next = end < 0 ? chunk.length : end + 1
      length += next - start
      if (length <= maxBytes) parts.push(Buffer.from(chunk.subarray(start, next)))
      else for (const part of parts.splice(0)) part.fill(0)
      if (end >= 0) yield take()
      start = next
    }
    chunk.fill(0)
  }
  if (length > 0) yield take()
}

/** Whether a line has nothing but blanks: space, tab and the ends of lines. */
const isBlank = (line: Uint8Array): boolean =>
  line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d)

/** Whether a line is the first one of CSV, which names the columns. */
const namesColumns = (line: string) => {
  const cells = line.split(/[,;\t]/).map((cell) => cell.replaceAll('"', "").trim())
  return cells.includes("key") && cells.includes("provider")
}

const parsed = (line: number, text: string): Entry => {
  try {
    return { line, body: JSON.parse(text) }
  } catch {
    return refusedEntry(line, "must be valid JSON")
  }
}

/** Reads a record from each line of JSON, one by one; blank lines are passed over. `onBytes` gets the size of each chunk. */
export async function* readEntries(
  source: AsyncIterable<Buffer>,
  onBytes: (count: number) => void
): AsyncGenerator<Entry> {
  async function* counted() {
    for await (const chunk of source) {
      onBytes(chunk.length)
      yield chunk
    }
  }
  for await (const { bytes, number } of readLines(counted())) {
    if (bytes === undefined) yield refusedEntry(number, "must have at most 256 KiB")
    else if (!isUtf8(bytes)) yield refusedEntry(number, "must be UTF-8")
    else if (!isBlank(bytes)) {
      const text = bytes.toString("utf8")
      if (number === 1 && namesColumns(text)) throw csvRefused()
      yield parsed(number, text)
    }
    bytes?.fill(0)
  }
}
