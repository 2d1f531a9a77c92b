import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"

const base64At = (offset: number, bytes: Buffer): string => {
  const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64")
  return text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6))
}

/**
 * How bytes may lie in a text, a table or a file: as they are and reversed, each plain, in hexadecimal and in base64 at
 * its three offsets; and as a part of a URL.
 */
const formsOf = (bytes: Buffer): ReadonlyArray<string> => {
  const both = [bytes, Buffer.from(bytes).reverse()]
  const base64 = both.flatMap((given) => [0, 1, 2].map((offset) => base64At(offset, given)))
  const forms = [
    ...both.flatMap((given) => [given.toString("latin1"), given.toString("hex")]),
    ...base64,
    ...base64.map((text) => text.replaceAll("+", "-").replaceAll("/", "_")),
    encodeURIComponent(bytes.toString("latin1"))
  ]
  return Array.from(new Set(forms))
}

/** This many consecutive bytes of a secret are a leak: more than a label shows. */
const leakLength = 9

/** Forms are looked up by their first bytes; each form is longer. */
const headLength = 8

const slotCount = 2 ** 22
const slotOf = (newer: number, older: number) => Math.imul(newer ^ Math.imul(older, 0x9e3779b1), 0x85ebca6b) >>> 10

const inSmallLetters = Uint8Array.from({ length: 256 }, (_, byte) => (byte >= 65 && byte <= 90 ? byte + 32 : byte))
const folded = (bytes: Uint8Array): Buffer => Buffer.from(bytes.map((byte) => inSmallLetters[byte] ?? 0))

const windowsOf = (secret: Buffer, width: number) =>
  Array.from({ length: Math.max(0, secret.length - width + 1) }, (_, start) => secret.subarray(start, start + width))

interface Form {
  readonly secret: string
  readonly bytes: Buffer
}

/**
 * Looks for secrets, given by name: any `width` bytes in a row of one, in every form and whatever case. Answers in one
 * pass with how often it met each, those it did not meet left out. Hexadecimal digits need a greater width: among
 * megabytes of them, 9 in a row of one are met by chance.
 */
export const leakSearch = (secrets: Readonly<Record<string, string | Buffer>>, width = leakLength) => {
  const taken = new Uint8Array(slotCount)
  const formsByHead = new Map<string, Array<Form>>()
  for (const [secret, value] of Object.entries(secrets)) {
    for (const form of new Set(windowsOf(Buffer.from(value as string), width).flatMap(formsOf))) {
      const bytes = folded(Buffer.from(form, "latin1"))
      const head = bytes.toString("latin1", 0, headLength)
      const others = formsByHead.get(head)
      if (others === undefined) formsByHead.set(head, [{ secret, bytes }])
      else others.push({ secret, bytes })
      taken[slotOf(bytes.readInt32BE(4), bytes.readInt32BE(0))] = 1
    }
  }

  return (given: string | Uint8Array): Readonly<Record<string, number>> => {
    const bytes = folded(typeof given === "string" ? Buffer.from(given) : given)
    const hits: Record<string, number> = {}
    for (let end = 1, newer = 0, older = 0; end <= bytes.length; end += 1) {
      older = (older << 8) | (newer >>> 24)
      newer = (newer << 8) | (bytes[end - 1] ?? 0)
      if (taken[slotOf(newer, older)] === 0) continue
      const start = end - headLength
      for (const form of formsByHead.get(bytes.toString("latin1", start, end)) ?? []) {
        if (!bytes.subarray(start, start + form.bytes.length).equals(form.bytes)) continue
        hits[form.secret] = (hits[form.secret] ?? 0) + 1
      }
    }
    return hits
  }
}

/** The last two searches: to make one takes longer than to look through a text. */
const recent = new Map<string, ReturnType<typeof leakSearch>>()

const searchFor = (secrets: ReadonlyArray<string>) => {
  const name = JSON.stringify(secrets)
  const search = recent.get(name) ?? leakSearch(Object.fromEntries(secrets.map((secret) => [secret, secret])))
  recent.delete(name)
  recent.set(name, search)
  for (const oldest of Array.from(recent.keys()).slice(0, -2)) recent.delete(oldest)
  return search
}

/** The first of the secrets of which a text holds any 9 characters in a row, in whatever form. */
export const leakOf = (text: string, secrets: ReadonlyArray<string>): string | undefined => {
  const hits = searchFor(secrets)(text)
  return secrets.find((secret) => hits[secret] !== undefined)
}

/** Every string in JSON text, in any order. */
const stringsIn = (text: string): ReadonlyArray<string> => {
  const strings: Array<string> = []
  const keep = (_name: string, value: unknown) => {
    if (typeof value === "string") strings.push(value)
    return value
  }
  try {
    JSON.parse(text, keep)
    return strings
  } catch {
    return []
  }
}

const materialIn = (text: string): ReadonlyArray<string> => {
  if (!text.trimStart().startsWith("{")) return []
  try {
    const { api_key, region = "us" } = JSON.parse(text) as { readonly api_key?: unknown; readonly region?: unknown }
    const known = ["global", "europe", "us", "eu"].includes(String(region))
    return typeof api_key === "string" && api_key !== "" && known ? [api_key] : []
  } catch {
    return []
  }
}

/** Whether a stored key is the leaked text or has it inside, worked out without labels, seals or the code under test. */
export const holdsByTheBook = (provider: string, key: string, leak: string): boolean => {
  const material = provider === "openai" || provider === "fireworks" ? materialIn(key) : []
  const stored = [key, ...material, ...(material.length > 0 ? material : [key]).flatMap(stringsIn)]
  const texts = [leak, leak.replace(/^\uFEFF/, "").replace(/\r?\n$/, "")]
  return [...texts, ...texts.flatMap(materialIn)].some((secret) => secret !== "" && stored.includes(secret))
}

/** Every value of every table as text; bytes are hexadecimal there. */
export const databaseContent = (sql: SqlClient.SqlClient): Effect.Effect<string, SqlError.SqlError> =>
  Effect.gen(function* () {
    const tables = yield* sql<{ name: string }>`
      SELECT format('%I.%I', table_schema, table_name) AS name FROM information_schema.tables
      WHERE table_schema NOT IN ('pg_catalog', 'information_schema')`
    const contents = yield* Effect.forEach(tables, ({ name }) =>
      sql.unsafe<{ line: string }>(`SELECT row_to_json(t)::text AS line FROM ${name} AS t`)
    )
    return contents.flatMap((rows) => rows.map(({ line }) => line)).join("\n")
  })
