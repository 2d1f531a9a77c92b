import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { created } from "../support/http/Bodies.ts"
import { assertInvalid } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const secret = "sk-0123456789-0123456789-AbCd"
const material = (members: object) => JSON.stringify(members)
const inRegion = (region: string) => material({ api_key: secret, region })

interface Case {
  readonly rule: string
  readonly key: string
  readonly declared?: string | null
}

const accepted: ReadonlyArray<Case & { readonly region: string | null; readonly label?: string }> = [
  { rule: "a plain key has no region (D28)", key: secret, region: null },
  { rule: "key material without a region (D28)", key: material({ api_key: secret }), region: null },
  { rule: "key material of global (D28, D29)", key: inRegion("global"), region: "global" },
  { rule: "key material of europe (D28, D29)", key: inRegion("europe"), region: "europe" },
  { rule: "key material of us (D28, D29)", key: inRegion("us"), region: "us" },
  { rule: "eu is europe (D28)", key: inRegion("eu"), region: "europe" },
  { rule: "blanks before the brace (D28)", key: ` \t\r\n${inRegion("us")}`, region: "us" },
  {
    rule: "other members are ignored (D28)",
    key: material({ organization: 1, api_key: secret, region: "us" }),
    region: "us"
  },
  { rule: "declared null is the key's region (D29)", key: inRegion("us"), declared: null, region: "us" },
  { rule: "declared equal to the key's region (D29)", key: inRegion("us"), declared: "us", region: "us" },
  { rule: "declared europe equals eu (D29)", key: inRegion("eu"), declared: "europe", region: "europe" },
  { rule: "declared global equals global (D29)", key: inRegion("global"), declared: "global", region: "global" },
  {
    rule: "declared global fits key material without a region (D29)",
    key: material({ api_key: secret }),
    declared: "global",
    region: "global"
  },
  { rule: "declared global fits a plain key (D29)", key: secret, declared: "global", region: "global" },
  {
    rule: "the label is made of api_key (D35)",
    key: material({ api_key: "ABCDEFGHIJKLMNOPQRSTUVWXYZ", region: "us" }),
    region: "us",
    label: "ABC...WXYZ"
  },
  {
    rule: "the label of a short api_key in long key material (D35)",
    key: material({ note: "x".repeat(40), api_key: "short" }),
    region: null,
    label: "***...***"
  },
  {
    rule: "the label of api_key with an escape (D35)",
    key: `{"api_key":"\\u0041BCDEFGHIJKLMNOPQRSTUVWXYZ"}`,
    region: null,
    label: "ABC...WXYZ"
  },
  { rule: "plain text with a brace later on (D28)", key: "sk-{0123456789-0123456789-AbCd", region: null },
  {
    rule: "JSON of another kind is plain text (D28)",
    key: '["sk-0123456789-0123456789-AbCd"',
    region: null,
    label: '["s...bCd"'
  }
]

const malformed =
  "must be a plain key or a JSON object with a non-empty api_key and, if it has a region, one of global, europe, us or eu"
const mismatch = "must match the region of the key"
const noRegion =
  "must be global or null for a key without a region: only a JSON object with api_key and region declares another"

const malformedKey = (rule: string, key: string) => ({ rule, key, path: "key", message: malformed })
const declaring = (declared: string, rule: string, key: string, message: string) => {
  return { rule: `declared ${declared} for ${rule}`, key, declared, path: "declared_region", message }
}

const refused: ReadonlyArray<Case & { readonly path: string; readonly message: string }> = [
  malformedKey("a lone brace (D28)", "{"),
  malformedKey("JSON that is cut off (D28)", inRegion("us").slice(0, -1)),
  malformedKey("JSON with more behind it (D28)", `${inRegion("us")}x`),
  malformedKey("no api_key (D28)", material({ region: "us" })),
  malformedKey("an empty object (D28)", "{}"),
  malformedKey("an empty api_key (D28)", material({ api_key: "" })),
  malformedKey("an api_key of null (D28)", material({ api_key: null })),
  malformedKey("an api_key that is a number (D28)", material({ api_key: 5 })),
  malformedKey("an api_key that is an object (D28)", material({ api_key: { api_key: secret } })),
  malformedKey("an unknown region (D28)", inRegion("mars")),
  malformedKey("a region in capitals (D28)", inRegion("US")),
  malformedKey("an empty region (D28)", inRegion("")),
  malformedKey("a region of null (D28)", material({ api_key: secret, region: null })),
  malformedKey("a region that is a list (D28)", material({ api_key: secret, region: ["us"] })),
  declaring("us", "a key of europe (D29)", inRegion("europe"), mismatch),
  declaring("europe", "a key of us (D29)", inRegion("us"), mismatch),
  declaring("global", "a key of us (D29)", inRegion("us"), mismatch),
  declaring("us", "a key of global (D29)", inRegion("global"), mismatch),
  declaring("us", "key material without a region (D29)", material({ api_key: secret }), noRegion),
  declaring("europe", "a plain key (D29)", secret, noRegion)
]

const notAllowed = "must be global or null for this provider"
const others: ReadonlyArray<readonly [provider: string, declared: string | null, message: string | undefined]> = [
  ["azure", null, undefined],
  ["azure", "global", undefined],
  ["azure", "europe", undefined],
  ["azure", "us", undefined],
  ["anthropic", null, undefined],
  ["anthropic", "global", undefined],
  ["anthropic", "europe", notAllowed],
  ["anthropic", "us", notAllowed],
  ["amazon-bedrock", "us", notAllowed],
  ["google-vertex", "europe", notAllowed]
]

const body = (provider: string, { declared, key }: Omit<Case, "rule">) => ({
  provider,
  key,
  ...(declared === undefined ? {} : { declared_region: declared })
})

layerLive(TestService.layer)("key material (section 4.1, D28, D29)", (it) => {
  for (const provider of ["openai", "fireworks"]) {
    it.effect.each(accepted)(`${provider} accepts: $rule`, ({ label, region, ...given }) =>
      Effect.gen(function* () {
        const { create } = yield* TestService.tenant
        const made = created(yield* create(body(provider, given)))
        assert.strictEqual(made["declared_region"], region)
        assert.strictEqual(made["label"], label ?? "sk-...AbCd")
      })
    )

    it.effect.each(refused)(`${provider} refuses: $rule`, ({ message, path, ...given }) =>
      Effect.gen(function* () {
        const { rowCount } = yield* TestService
        const { create } = yield* TestService.tenant
        const before = yield* rowCount
        const answer = yield* create(body(provider, given))
        assertInvalid(answer, { path: [path], message })
        assert.strictEqual(yield* rowCount, before)
      })
    )
  }

  it.effect.each(others)("%s declares %s (D27, D30)", ([provider, declared, message]) =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      const answer = yield* create(body(provider, { key: secret, declared }))
      if (message !== undefined) return assertInvalid(answer, { path: ["declared_region"], message })
      assert.strictEqual(created(answer)["declared_region"], declared)
    })
  )

  it.effect("what looks like key material is a plain key (D28)", () =>
    Effect.gen(function* () {
      const { create } = yield* TestService.tenant
      const made = created(yield* create(body("azure", { key: inRegion("us") })))
      assert.strictEqual(made["declared_region"], null)
      assert.strictEqual(made["label"], '{"a...us"}')
    })
  )
})
