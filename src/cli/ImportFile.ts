import { isUtf8 } from "node:buffer"
import type { Issue } from "../domain/Issue.ts"
import { CommandFailed } from "./Output.ts"

/** A line of an import file: the body of a create request, or why it has none. Lines count from 1. */
export type Entry = { readonly line: number; readonly body: unknown } | { readonly line: number; readonly issue: Issue }

const refusal = (line: number, message: string): Entry => ({ line, issue: { path: [], message } })

/** The failure for a CSV file. */
export const csvRefused = () =>
  new CommandFailed({
    message: "Only JSON lines are imported: convert CSV to them first, with the line of jq in docs/commands.md."
  })

/** A line with its line end. The consumer must wipe its bytes. */
interface Line {
  readonly number: number
  /** Undefined if the line is too long. */
  readonly bytes: Buffer | undefined
}

/** Maximum bytes of a line, as for the body of a request over HTTP (D9). */
const maxBytes = 256 * 1024

const newline = 0x0a
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf])

/** Joins the parts of a line, and wipes them if they were copied. */
const joinParts = (parts: ReadonlyArray<Buffer>) => {
  const [first] = parts
  if (parts.length === 1 && first !== undefined) return first
  const line = Buffer.concat(parts)
  for (const part of parts) part.fill(0)
  return line
}

/** Splits chunks into lines, and wipes each chunk. Skips a byte order mark at the beginning of the first line. */
async function* readLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<Line> {
  let number = 1
  let length = 0
  let parts: Array<Buffer> = []
  const endLine = (): Line => {
    const bytes = length > maxBytes ? undefined : joinParts(parts)
    const hasMark = number === 1 && bytes?.subarray(0, 3).equals(byteOrderMark) === true
    parts = []
    length = 0
    return { number: number++, bytes: hasMark ? bytes.subarray(3) : bytes }
  }
  for await (const chunk of chunks) {
    for (let start = 0; start < chunk.length;) {
      const newlineAt = chunk.indexOf(newline, start)
      const end = newlineAt < 0 ? chunk.length : newlineAt + 1
      length += end - start
      if (length <= maxBytes) parts.push(Buffer.from(chunk.subarray(start, end)))
      else for (const part of parts.splice(0)) part.fill(0)
      if (newlineAt >= 0) yield endLine()
      start = end
    }
    chunk.fill(0)
  }
  if (length > 0) yield endLine()
}

/** Whether a line has only spaces, tabs and line ends. */
const isBlank = (line: Uint8Array): boolean =>
  line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0a || byte === 0x0d)

/** Whether a line is the header of a CSV file. */
const isCsvHeader = (line: string) => {
  const cells = line.split(/[,;\t]/).map((cell) => cell.replaceAll('"', "").trim())
  return cells.includes("key") && cells.includes("provider")
}

const parse = (line: number, text: string): Entry => {
  try {
    return { line, body: JSON.parse(text) }
  } catch {
    return refusal(line, "must be valid JSON")
  }
}

/**
 * Reads an entry from each line that is not blank. Throws `csvRefused()` if the first line is a CSV header. Passes the
 * size of each chunk to `onBytes`.
 */
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
    if (bytes === undefined) yield refusal(number, "must have at most 256 KiB")
    else if (!isUtf8(bytes)) yield refusal(number, "must be UTF-8")
    else if (!isBlank(bytes)) {
      const text = bytes.toString("utf8")
      if (number === 1 && isCsvHeader(text)) throw csvRefused()
      yield parse(number, text)
    }
    bytes?.fill(0)
  }
}
