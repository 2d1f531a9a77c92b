import { csvEntries } from "./csvEntries.ts"
import { jsonEntries } from "./jsonEntries.ts"
import { readLines } from "./readLines.ts"

export type Format = "jsonl" | "csv"

/** Reads the records of a file one by one. `onBytes` gets the size of each chunk. */
export const readEntries = (source: AsyncIterable<Buffer>, format: Format, onBytes: (count: number) => void) => {
  async function* counted() {
    for await (const chunk of source) {
      onBytes(chunk.length)
      yield chunk
    }
  }
  const lines = readLines(counted())
  return format === "csv" ? csvEntries(lines) : jsonEntries(lines)
}
