import { Arbitrary, Result, Schema } from "effect"
import { AccountId, CredentialId, isKekId, kekIdForm, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { issuesOf } from "../../src/domain/Issue.ts"
import { elementOf, integer, oneOf } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const nil = "00000000-0000-0000-0000-000000000000"
const max = "ffffffff-ffff-ffff-ffff-ffffffffffff"

/** Whether a text is a UUID of RFC 9562, checked by character: nil, max, or version 1 to 8 of its variant. */
const isCanonical = (text: string) =>
  text === nil ||
  text === max ||
  (text.length === 36 &&
    Array.from(text).every((character, at) =>
      [8, 13, 18, 23].includes(at)
        ? character === "-"
        : (at === 14 ? "12345678" : at === 19 ? "89ab" : "0123456789abcdef").includes(character)
    ))

const hexadecimal = elementOf(Array.from("0123456789abcdef"))
const of = (characters: Arbitrary.Arbitrary<string>, length: number) =>
  Arbitrary.map(Arbitrary.array(characters, { minLength: length, maxLength: length }), (parts) => parts.join(""))

const canonical = Arbitrary.map(
  Arbitrary.all({ digits: of(hexadecimal, 30), version: integer(1, 8), variant: elementOf(Array.from("89ab")) }),
  ({ digits, variant, version }) =>
    [
      digits.slice(0, 8),
      digits.slice(8, 12),
      `${version}${digits.slice(12, 15)}`,
      variant + digits.slice(15, 18),
      digits.slice(18)
    ].join("-")
)

/** A UUID with one place put in, left out or replaced. */
const nearly = Arbitrary.map(
  Arbitrary.all({
    uuid: canonical,
    at: oneOf(integer(0, 36), elementOf([0, 14, 19, 35, 36])),
    put: elementOf(Array.from("0123456789abcdefABCDEFgzGZ-_ \n")),
    removed: integer(0, 1),
    added: integer(0, 1)
  }),
  ({ added, at, put, removed, uuid }) => uuid.slice(0, at) + put.repeat(added) + uuid.slice(at + removed)
)

describe.for([
  ["AccountId", AccountId],
  ["CredentialId", CredentialId],
  ["WorkspaceId", WorkspaceId]
] as const)("the schema %s", ([, id]) => {
  const is = Schema.is<Schema.Constraint>(id)
  const decode = Schema.decodeUnknownResult(id, { errors: "all" })

  it.prop(
    "accepts only UUIDs, decodes them to lowercase, and encodes them unchanged",
    [oneOf(nearly, nearly, canonical, elementOf([nil, max, max.toUpperCase()]))],
    ([text]) => {
      assert.strictEqual(is(text), isCanonical(text), text)
      const decoded = decode(text)
      if (isCanonical(text.toLowerCase())) {
        assert.strictEqual<unknown>(Result.getOrThrow(decoded), text.toLowerCase())
        assert.strictEqual(Schema.encodeSync(id)(id.make(text.toLowerCase())), text.toLowerCase())
      } else {
        const issues = Result.isFailure(decoded) ? issuesOf(decoded.failure.issue) : []
        assert.deepStrictEqual(issues, [{ path: [], message: "must be a UUID" }])
      }
    },
    { arbitrary: { runs: 300 } }
  )
})

describe("the id of a key-encryption key (docs/keys.md, The keyring)", () => {
  it("is accepted exactly if it has the characters and length that its description states", () => {
    const [, least = "", most = "", told = ""] = /^(\d+) to (\d+) characters of (.*)$/.exec(kekIdForm) ?? []
    const inRange = (text: string) => told.split(" ").some(([low = "", , high = low]) => low <= text && text <= high)
    const characters = Array.from({ length: 0x3000 }, (_, code) => String.fromCharCode(code))
    assert.deepStrictEqual(characters.filter(isKekId), characters.filter(inRange))
    assert.deepStrictEqual(
      [0, 1, 2, 63, 64, 65].filter((length) => isKekId("k".repeat(length))),
      [0, 1, 2, 63, 64, 65].filter((length) => length >= Number(least) && length <= Number(most))
    )
    assert.isTrue(isKekId("AZaz09._-"))
  })

  it.for(["", "k k", "k\n", "\nk", "k/1", "k:1", "ké", undefined, 1])("cannot be %j", (given) => {
    assert.isFalse(isKekId(given))
  })
})
