import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Schema } from "effect"
import { Credential, memberNames, members } from "../../src/domain/Credential.ts"
import { anyCredential } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const encode = Schema.encodeSync(Credential)
const decode = Schema.decodeUnknownSync(Credential)

const fields = [
  "id",
  "workspace_id",
  "provider",
  "name",
  "label",
  "created_at",
  "disabled",
  "is_fallback",
  "is_required",
  "is_byok_only",
  "allowed_api_key_hashes",
  "allowed_models",
  "allowed_user_ids",
  "declared_region",
  "declared_zdr",
  "sort_order"
]
const nullable = [
  "name",
  "allowed_api_key_hashes",
  "allowed_models",
  "allowed_user_ids",
  "declared_region",
  "declared_zdr"
]

describe("a credential in an answer (section 2.1)", () => {
  it.prop(
    "has exactly 16 fields in a fixed order, null only in the six optional ones, and decodes back to itself",
    [anyCredential],
    ([given]) => {
      const written = encode({ ...given, key: "not a field" } as Credential)
      assert.deepStrictEqual(Object.keys(written), fields)
      assert.strictEqual(written.created_at, new Date(given.created_at.epochMilliseconds).toISOString())
      assert.deepEqual(encode(decode(JSON.parse(JSON.stringify(written)))), written)
      for (const field of fields) {
        const without = Object.fromEntries(Object.entries(written).filter(([name]) => name !== field))
        assert.throws(() => decode(without))
        assert.throws(() => decode({ ...written, [field]: {} }))
        if (nullable.includes(field)) decode({ ...written, [field]: null })
        else assert.throws(() => decode({ ...written, [field]: null }))
      }
      assert.throws(() => decode({ ...written, sort_order: 0.5 }))
    },
    { arbitrary: { runs: 30 } }
  )
})

const page = readFileSync(join(import.meta.dirname, "../../docs/concepts.md"), "utf8")
const [, section = ""] = /^## The fields of a credential\n(.*?)^## /ms.exec(page) ?? []

describe("the table of fields in docs/concepts.md (section 2.1, section 4.1)", () => {
  it("has every field in the order of an answer, with who sets it and its default", () => {
    const rows = Array.from(
      section.matchAll(/^\| `(\w+)` +\| (.*?) +\| (.*?) *\| \w.* \|$/gm),
      ([, name, setBy, byDefault = ""]) => [name, setBy, byDefault.replace(/^`(.*?)`.*/, "$1")]
    )
    const setByOf = (member: object) =>
      "input" in member ? "create, update" : "createOnly" in member ? "create" : "byok"
    const stated: Readonly<Record<string, string>> = { provider: "required", workspace_id: "the default one" }
    const defaultOf = (name: string, member: object) =>
      stated[name] ?? ("default" in member ? String(member.default) : "")
    assert.deepStrictEqual(rows, [
      ["key", "create, update", "required"],
      ...memberNames.map((name) => [name, setByOf(members[name]), defaultOf(name, members[name])])
    ])
  })
})
