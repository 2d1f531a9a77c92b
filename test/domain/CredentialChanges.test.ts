import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Redacted, Schema } from "effect"
import { ChangeableField } from "../../src/domain/ChangeableField.ts"
import { CredentialChanges } from "../../src/domain/CredentialChanges.ts"
import { decodeCredentialChanges } from "../../src/domain/decodeCredentialChanges.ts"

const decode = Schema.decodeUnknownSync(CredentialChanges)
const hash = "0".repeat(64)

const issues = (body: unknown) =>
  Effect.runSync(
    Effect.match(decodeCredentialChanges(body), {
      onFailure: ({ error }) => error.metadata.issues.map(({ message, path }) => `${path.join(".")}: ${message}`),
      onSuccess: () => []
    })
  )

describe("the body of an update", () => {
  it("has the members that can be named in the audit log, and no others", () => {
    assert.sameMembers(Object.keys(CredentialChanges.fields), [...ChangeableField.literals])
  })

  it("may be empty, and gets no defaults", () => {
    assert.deepStrictEqual(Object.keys(decode({})), [])
    assert.deepStrictEqual(Object.keys(decode({ name: null })), ["name"])
  })

  it("ignores what cannot change, and what is unknown (L1, D13)", () => {
    const ignored = {
      ...{ provider: 1, workspace_id: null, sort_order: -1, id: "x", label: {}, created_at: 0 },
      added_later: [1]
    }
    assert.deepStrictEqual(Object.keys(decode({ ...ignored, disabled: true })), ["disabled"])
  })

  it.for([
    ["name", null, []],
    ["allowed_api_key_hashes", null, []],
    ["allowed_models", null, []],
    ["allowed_user_ids", null, []],
    ["declared_region", null, []],
    ["declared_zdr", null, []],
    ["allowed_models", [], []],
    ["allowed_user_ids", [], []],
    ["allowed_api_key_hashes", [hash], []],
    ["key", null, ["key: must be a string"]],
    ["key", "", ["key: must not be empty"]],
    ["disabled", null, ["disabled: must be true or false"]],
    ["is_fallback", null, ["is_fallback: must be true or false"]],
    ["is_required", "true", ["is_required: must be true or false"]],
    ["is_byok_only", 1, ["is_byok_only: must be true or false"]],
    ["name", "x".repeat(256), ["name: must have at most 255 characters"]],
    ["allowed_api_key_hashes", [], ["allowed_api_key_hashes: must have at least 1 element"]],
    ["allowed_models", Array(101).fill(1), ["allowed_models: must have at most 100 elements"]],
    ["allowed_models", ["a", 1], ["allowed_models.1: must be a string"]],
    ["declared_region", "eu", ["declared_region: must be global, europe, us or null"]],
    ["declared_zdr", 0, ["declared_zdr: must be true, false or null"]]
  ] as const)("%s %j: %j (D7, D21, D22)", ([member, value, expected]) => {
    assert.deepStrictEqual<ReadonlyArray<string>>(issues({ [member]: value }), expected)
  })

  it("that is not an object is refused (D8)", () => {
    for (const body of [null, 1, "x", []]) assert.deepStrictEqual(issues(body), [": must be a JSON object"])
  })

  it("keeps the key out of what is printed (T4)", () => {
    const decoded = decode({ key: "canary-of-a-key" })
    assert.notInclude(JSON.stringify(decoded), "canary")
    assert.isTrue(Redacted.isRedacted(decoded.key))
    const exit = Effect.runSyncExit(decodeCredentialChanges({ key: "canary\0" }))
    assert.isTrue(Exit.isFailure(exit))
    assert.notInclude(JSON.stringify(exit), "canary")
  })
})
