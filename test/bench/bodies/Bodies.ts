/** A pseudo-random number below `limit`, reproducible. */
export type Random = (limit: number) => number

export const randomFrom =
  (seed: number): Random =>
  (limit) => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((seed / 2 ** 32) * limit)
  }

const maxBytes = 256 * 1024
const repeated = (text: string, size: number) => text.repeat(Math.max(1, Math.floor(size / text.length)))
const list = (element: string) => (size: number) => `[${repeated(`${element},`, size - 2).slice(0, -1)}]`
const text = (unit: string) => (size: number) => `"${repeated(unit, size - 2)}"`
const members = (name: (index: number) => string) => (size: number) => {
  const parts: Array<string> = []
  for (let index = 0, length = 2; length < size; index++) {
    const part = `"${name(index)}":1`
    parts.push(part)
    length += part.length + 1
  }
  return `{${parts.join(",")}}`
}
const nested = (open: string, inner: string, close: string) => (size: number) => {
  const depth = Math.max(1, Math.floor(size / (open.length + close.length)))
  return open.repeat(depth) + inner + close.repeat(depth)
}
const inText = (make: (size: number) => string) => (size: number) => JSON.stringify(make(Math.floor(size / 1.7)))

/** JSON of about a given size, by what it strains. */
const values: Readonly<Record<string, (size: number) => string>> = {
  ones: list("1"),
  nulls: list("null"),
  "empty texts": list('""'),
  "empty lists": list("[]"),
  "empty objects": list("{}"),
  letters: list('"a"'),
  "half surrogates": list(String.raw`"\ud800"`),
  "numbers that overflow": list("1e999"),
  "numbers between two doubles": list("2.225073858507201136057409796709131975934819546351645648e-308"),
  "one long number": (size) => "1".repeat(size),
  text: text("a"),
  "escaped text": text(String.raw`\u0061`),
  "text outside the BMP": text("\u{1f600}"),
  "escaped half surrogates": text(String.raw`\ud800`),
  "U+0000": text(String.raw`\u0000`),
  hexadecimal: text("0123456789abcdef"),
  "a UUID and more": text("019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88"),
  blanks: text(" "),
  "100 long texts": (size) => `[${Array.from({ length: 100 }, () => text("a")(size / 100 - 1)).join(",")}]`,
  "100 texts of half surrogates": (size) =>
    `[${Array.from({ length: 100 }, () => text(String.raw`\ud800`)(size / 100 - 1)).join(",")}]`,
  "100 wrong elements": (size) => `[${Array.from({ length: 100 }, () => list("1")(size / 100 - 1)).join(",")}]`,
  "distinct members": members((index) => index.toString(36)),
  "numbered members": members(String),
  "members of one residue": members((index) => String((index * 2 ** 19) % 2 ** 32)),
  "long names": members((index) => String(index).padStart(1_000, "a")),
  "one member repeated": members(() => "a"),
  "__proto__ repeated": members(() => "__proto__"),
  "constructor repeated": members(() => "constructor"),
  "deep lists": nested("[", "1", "]"),
  "deep objects": nested('{"a":', "1", "}"),
  "deep __proto__": nested('{"__proto__":', "{}", "}"),
  "key material": inText((size) => `{"api_key":"${"a".repeat(size)}"}`),
  "key material of escapes": inText((size) => `{"api_key":"${repeated(String.raw`\u0061`, size)}"}`),
  "key material that is deep": inText(nested('{"api_key":', "1", "}")),
  "key material with members": inText((size) => `{"api_key":"a",${members(String)(size).slice(1)}`),
  "key material behind blanks": inText((size) => `${" ".repeat(size)}{`),
  "key material left open": inText((size) => `{"api_key":"${"a".repeat(size)}`)
}

const names = [
  ...["key", "provider", "name", "workspace_id", "allowed_api_key_hashes", "allowed_models", "allowed_user_ids"],
  ...["declared_region", "declared_zdr", "disabled", "is_required", "is_fallback", "is_byok_only"],
  ...["unknown", "__proto__"]
]

/** What follows the members: what a parser finds only at the end. */
const ends: Readonly<Record<string, string>> = {
  valid: "}",
  "cut off": "",
  "no UTF-8": "\xff}",
  "garbage behind": "}]",
  "half an escape": String.raw`,"a":"\u00`
}

export interface Member {
  readonly name: string
  readonly value: string
  /** Its part of the body. */
  readonly share: number
}

/** A body by its ingredients, which a search can vary. */
export interface Recipe {
  readonly members: ReadonlyArray<Member>
  readonly end: string
  /** Whether a provider and a key come last, where they win over repeated ones (D13). */
  readonly complete: boolean
}

const pick = (random: Random, from: ReadonlyArray<string>) => from[random(from.length)] ?? ""

const anyMember = (random: Random): Member => ({
  name: pick(random, names),
  value: pick(random, Object.keys(values)),
  share: 1 + random(8)
})

/** Every value in every member alone, then every end. */
export const plainRecipes: ReadonlyArray<Recipe> = [
  ...names.flatMap((name) =>
    Object.keys(values).map((value) => ({ members: [{ name, value, share: 1 }], end: "valid", complete: true }))
  ),
  ...Object.keys(ends).flatMap((end) =>
    ["ones", "text", "deep lists", "numbered members"].map((value) => ({
      members: [{ name: "unknown", value, share: 1 }],
      end,
      complete: false
    }))
  )
]

/** Changes one ingredient, adds one or removes one. */
export const vary = (random: Random, { complete, end, members }: Recipe): Recipe => {
  const at = random(members.length)
  switch (random(5)) {
    case 0:
      return { complete, end, members: [...members, anyMember(random)] }
    case 1:
      return { complete, end, members: members.length > 1 ? members.toSpliced(at, 1) : [anyMember(random)] }
    case 2:
      return { complete: !complete, end: pick(random, Object.keys(ends)), members }
    default:
      return { complete, end, members: members.with(at, anyMember(random)) }
  }
}

/** The bytes of a recipe, as many as a body may have. */
export const bodyOf = ({ complete, end, members }: Recipe): Buffer => {
  const last = complete ? [`"provider":"openai"`, `"key":"sk-0123456789-0123456789"`] : []
  const tail = Buffer.from(ends[end] ?? "}", "latin1")
  const total = members.reduce((sum, { share }) => sum + share, 0)
  for (let room = maxBytes - 200; ; room *= 0.9) {
    const parts = members.map(({ name, share, value }) => {
      const make = values[value]
      return `"${name}":${make?.((room * share) / total - name.length - 4) ?? "null"}`
    })
    // Where the value of a member is itself what is looked at, it must not be repeated.
    const given = complete ? last.filter((member) => !parts.some((part) => part.startsWith(member.slice(0, 5)))) : last
    const bytes = Buffer.concat([Buffer.from(`{${[...parts, ...given].join(",")}`), tail])
    if (bytes.length <= maxBytes) return bytes
  }
}

export const nameOf = ({ complete, end, members }: Recipe): string =>
  [
    ...members.map(({ name, share, value }) => `${name}: ${value}${members.length > 1 ? ` (${share})` : ""}`),
    ...(end === "valid" ? [] : [end]),
    ...(complete ? [] : ["without key"])
  ].join(", ")
