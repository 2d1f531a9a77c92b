import { isUtf8 } from "node:buffer"
import { parse } from "csv-parse/sync"
import { NewCredential } from "../../domain/NewCredential.ts"
import { type Entry, refusedEntry } from "./Entry.ts"
import { ImportRefused } from "./ImportRefused.ts"
import { isBlank } from "./isBlank.ts"
import { type Line, maxBytes } from "./readLines.ts"

const members: ReadonlyArray<string> = Object.keys(NewCredential.fields)
/** Members whose cells are their text; the others hold JSON. */
const texts: ReadonlySet<string> = new Set<keyof NewCredential>([
  "key",
  "provider",
  "name",
  "workspace_id",
  "declared_region"
])

/** What is not JSON stays text, which the rules of create then refuse. Spreadsheets write TRUE and FALSE. */
const valueOf = (member: string, cell: string): unknown => {
  if (texts.has(member)) return cell
  try {
    return JSON.parse(/^\s*(true|false)\s*$/i.test(cell) ? cell.toLowerCase() : cell)
  } catch {
    return cell
  }
}

const quote = 0x22
const quotesIn = (bytes: Uint8Array) => bytes.reduce((count, byte) => (byte === quote ? count + 1 : count), 0)

/** The cells of a record; none if its quotes are wrong. */
const cellsOf = (record: Buffer): ReadonlyArray<string> | undefined => {
  try {
    return parse(record, { record_delimiter: ["\r\n", "\n"], relax_column_count: true })[0]
  } catch {
    return undefined
  }
}

const columnsOf = (cells: ReadonlyArray<string> | undefined) => {
  const refuse = (message: string) => new ImportRefused({ message: `The first line of the CSV ${message}.` })
  if (cells === undefined) throw refuse("must name the columns")
  const wrong = cells.findIndex((cell) => !members.includes(cell))
  if (wrong >= 0) throw refuse(`must name the columns, and column ${wrong + 1} is none of ${members.join(", ")}`)
  const repeated = cells.findIndex((cell, index) => cells.indexOf(cell) < index)
  if (repeated >= 0) throw refuse(`names column ${repeated + 1} twice`)
  const missing = ["key", "provider"].filter((member) => !cells.includes(member))
  if (missing.length > 0) throw refuse(`must have a column ${missing.join(" and a column ")}`)
  return cells
}

/** The records of CSV: lines, joined while a quote is open. One that cannot be joined or parsed is its first line. */
async function* csvRecords(lines: AsyncIterable<Line>) {
  const source = lines[Symbol.asyncIterator]()
  /** Lines that were read for a record to which they do not belong. */
  const returned: Array<Line> = []
  const next = async () => returned.shift() ?? ((await source.next()).value as Line | undefined)

  for (let first = await next(); first !== undefined; first = await next()) {
    const { bytes, number: line } = first
    if (bytes === undefined) {
      yield { line, problem: "must have at most 256 KiB" }
      continue
    }
    if (isBlank(bytes)) continue
    const record = [bytes]
    const others: Array<Line> = []
    let open = quotesIn(bytes) % 2 === 1
    for (let size = bytes.length; open && size <= maxBytes;) {
      const following = await next()
      if (following === undefined) break
      others.push(following)
      if (following.bytes === undefined) break
      record.push(following.bytes)
      size += following.bytes.length
      if (quotesIn(following.bytes) % 2 === 1) open = false
    }
    const whole = Buffer.concat(record)
    const utf8 = isUtf8(whole)
    const cells = open || !utf8 ? undefined : cellsOf(whole)
    whole.fill(0)
    bytes.fill(0)
    if (cells === undefined) {
      returned.unshift(...others)
      yield { line, problem: utf8 ? "must be CSV: a quote in it is not closed or not doubled" : "must be UTF-8" }
    } else {
      for (const other of others) other.bytes?.fill(0)
      yield { line, cells }
    }
  }
}

/** Reads CSV whose first line names the columns, members of a create. An empty cell is a member that is not given. */
export async function* csvEntries(lines: AsyncIterable<Line>): AsyncGenerator<Entry> {
  let columns: ReadonlyArray<string> | undefined
  for await (const { cells, line, problem } of csvRecords(lines)) {
    if (columns === undefined) columns = columnsOf(cells)
    else if (cells === undefined) yield refusedEntry(line, problem)
    else if (cells.length !== columns.length) yield refusedEntry(line, "must have a cell for each column")
    else {
      const given = columns.flatMap((member, index) => {
        const cell = cells[index] ?? ""
        return cell === "" ? [] : [[member, valueOf(member, cell)] as const]
      })
      yield { line, body: Object.fromEntries(given) }
    }
  }
}
