import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { decodeNewCredential } from "../../src/domain/decodeNewCredential.ts"
import { InvalidParams } from "../../src/domain/Errors.ts"

describe("the input of create, in process (section 4.1, D7)", () => {
  it.effect("is decoded, with the defaults of what is left out", () =>
    Effect.gen(function* () {
      const { key, ...decoded } = yield* decodeNewCredential({ provider: "cohere", key: "fake-key", unknown: 1 })
      assert.strictEqual(Redacted.value(key), "fake-key")
      assert.deepInclude(decoded, { provider: "cohere", name: null, disabled: false })
    })
  )

  it.effect("fails with every issue at once, as over HTTP", () =>
    Effect.gen(function* () {
      const refused = yield* Effect.flip(decodeNewCredential({ provider: "nobody", name: 5, disabled: null }))
      assert.instanceOf(refused, InvalidParams)
      assert.sameDeepMembers(
        [...refused.error.metadata.issues],
        [
          { path: ["key"], message: "is required" },
          { path: ["provider"], message: "must be a known provider slug" },
          { path: ["name"], message: "must be a string or null" },
          { path: ["disabled"], message: "must be true or false" }
        ]
      )
    })
  )

  it.effect("fails with at most 100 issues, and with one for what is no object", () =>
    Effect.gen(function* () {
      const many = Array.from({ length: 100 }, () => 1)
      const refused = yield* Effect.flip(decodeNewCredential({ allowed_models: many, allowed_user_ids: many }))
      assert.lengthOf(refused.error.metadata.issues, 100)
      const { error } = yield* Effect.flip(decodeNewCredential("text"))
      assert.deepStrictEqual([...error.metadata.issues], [{ path: [], message: "must be a JSON object" }])
    })
  )
})
