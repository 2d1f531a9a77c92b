/** A line with its terminator. Its bytes belong to the reader of the line, who wipes them. */
export interface Line {
  readonly number: number
  /** Undefined if the line is too long. */
  readonly bytes: Buffer | undefined
}

/** As many bytes as a request body may have over HTTP (D9). */
export const maxBytes = 256 * 1024

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
export async function* readLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<Line> {
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
