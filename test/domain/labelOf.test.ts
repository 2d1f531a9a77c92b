import { Arbitrary } from "effect"
import { inconclusiveLabel } from "../../src/domain/KeyMaterial.ts"
import { labelOf } from "../../src/domain/labelOf.js"
import { anyString, elementOf, integer, text } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

/** How many characters of the secret the label depends on: those that cannot be exchanged without changing it. */
const shownBy = (label: (secret: string) => string, secret: string) => {
  const characters = Array.from(secret)
  return characters.filter((character, index) => {
    const exchanged = characters.with(index, character === "a" ? "b" : "a").join("")
    return label(exchanged) !== label(secret)
  }).length
}

const withinBound = (label: (secret: string) => string, secret: string) => {
  const shown = shownBy(label, secret)
  return shown <= 7 && (shown === 0 || Array.from(secret).length - shown >= 16)
}

describe("a label (D35)", () => {
  it.prop("shows at most 7 characters of a secret, and only if at least 16 stay hidden", [anyString], ([secret]) =>
    withinBound(labelOf, secret)
  )

  it("would show too much of 16 characters if it showed four at either end (control)", () => {
    assert.isFalse(withinBound((secret) => `${secret.slice(0, 4)}...${secret.slice(-4)}`, "0123456789abcdef"))
  })

  it.prop("is printable ASCII of 5 to 10 characters around an ellipsis", [anyString], ([secret]) =>
    /^[!-~]{1,3}\.{3}[!-~]{1,4}$/.test(labelOf(secret))
  )

  /** The label by the definition, which takes a long secret apart. */
  const byDefinition = (secret: string) => {
    const characters = Array.from(secret, (character) => (/^[!-~]$/.test(character) ? character : "*"))
    const shown = Math.max(0, Math.min(7, characters.length - 16))
    const start = characters.slice(0, Math.floor(shown / 2)).join("")
    return `${start || "***"}...${characters.slice(characters.length - Math.ceil(shown / 2)).join("") || "***"}`
  }
  const longSecret = Arbitrary.map(
    Arbitrary.all({ start: anyString, middle: elementOf(["k", "\u{1f600}", "\ud83d", "\ude00"]), n: integer(40, 130) }),
    ({ middle, n, start }) => [start, middle.repeat(n), start].join("")
  )
  it.prop("of a secret of any length is that of the definition", [longSecret], ([secret]) => {
    assert.strictEqual(labelOf(secret), byDefinition(secret))
  })

  const alphabet = "abcdefghijklmnopqrstuvwxyz"
  it.for([
    [0, "***...***"],
    [1, "***...***"],
    [16, "***...***"],
    [17, "***...q"],
    [18, "a...r"],
    [19, "a...rs"],
    [20, "ab...st"],
    [21, "ab...stu"],
    [22, "abc...tuv"],
    [23, "abc...tuvw"],
    [26, "abc...wxyz"]
  ] as const)("of the first %i letters of the alphabet is %s", ([length, label]) => {
    assert.strictEqual(labelOf(alphabet.slice(0, length)), label)
  })

  const hidden = "0123456789abcdef"
  it.for([
    ["an ordinary key", "sk-...AbCd", `sk-${hidden}AbCd`],
    ["a very long key", "sk-...AbCd", `sk-${hidden.repeat(1000)}AbCd`],
    ["a key with letters outside ASCII", "**-...Ab*d", `\u00e9\u4e2d-${hidden}Ab\u00dfd`],
    ["a key with blanks and control characters", "***...**~!", ` \t\n${hidden}\u007f\u00a0~!`],
    ["an emoji, letters and digits", "*b...yz", `\u{1f600}b${hidden}yz`],
    ["22 emoji, which count as 22 characters,", "***...***", "\u{1f600}".repeat(22)],
    ["23 emoji, which count as 23 characters,", "***...****", "\u{1f600}".repeat(23)],
    ["20 blanks, which count as characters, and ABC", "***...*ABC", `${" ".repeat(20)}ABC`],
    ["a key with half surrogate pairs at its ends", "*-k...xyz*", `\ud800-k${hidden}xyz\udfff`]
  ] as const)("of %s is %s", ([, label, secret]) => {
    assert.strictEqual(labelOf(secret), label)
  })
})

const blanks = elementOf(["", " ", "\n", "\t\r\n  ", "    "])
const json = Arbitrary.map(
  Arbitrary.all({
    secret: text(0, 40),
    before: blanks,
    after: blanks,
    spaces: elementOf([0, 2]),
    shape: elementOf([0, 1, 2])
  }),
  ({ after, before, secret, shape, spaces }) =>
    before + JSON.stringify([{ secret }, [secret, 1], secret][shape], null, spaces) + after
)

describe("the pattern of inconclusive labels (L15)", () => {
  it.prop("matches the label of any JSON that contains a string, even with white space around it", [json], ([key]) =>
    inconclusiveLabel.test(labelOf(key))
  )

  it.prop("matches the label of any key of at most 16 characters, which shows none of them", [text(1, 16)], ([key]) =>
    inconclusiveLabel.test(labelOf(key))
  )

  it.for(["sk-...AbCd", "***...q", "ab...stu", "{ab...cdef", "abc...def}"])("does not match %s (control)", (label) => {
    assert.isFalse(inconclusiveLabel.test(label))
  })
})
