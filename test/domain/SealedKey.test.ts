import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Struct } from "effect"
import { memberNames, members } from "../../src/domain/Credential.ts"
import { fingerprinted, makeFingerprinted } from "../../src/domain/NewCredential.ts"
import { encodeSealingContext, makeContextEncoder } from "../../src/domain/SealedKey.ts"
import { accountId, anyCredential } from "../support/memory/arbitraries.ts"

/** Two credentials with their accounts, and for each member one that differs from the first in that alone. */
const pairs = Arbitrary.map(
  Arbitrary.all({ one: anyCredential, other: anyCredential, account_id: accountId }),
  ({ account_id, one, other }) => ({
    context: { ...one, account_id },
    changed: memberNames.map((name) => ({ name, context: { ...one, account_id, [name]: other[name] } })),
    isOther: (name: (typeof memberNames)[number]) => JSON.stringify(one[name]) !== JSON.stringify(other[name])
  })
)

/** The table with a member that a later version adds. */
const later = {
  ...members,
  added_later: { ...members.is_required, bound: 13, added: true }
} as const

const unbound = ["name", "label", "created_at", "sort_order"]
const ofCreate = [...Struct.keys(members)].filter((name) => !["id", "label", "created_at", "sort_order"].includes(name))

describe("the members of a credential", () => {
  it.prop(
    "are each part of the sealed context but for those that decide nothing, and of the fingerprint if a create takes them",
    [pairs],
    ([{ changed, context, isOther }]) => {
      for (const { context: other, name } of changed.filter(({ name }) => isOther(name))) {
        const isBound = encodeSealingContext(other) !== encodeSealingContext(context)
        assert.strictEqual(isBound, !unbound.includes(name), name)
        const counts = JSON.stringify(fingerprinted(other)) !== JSON.stringify(fingerprinted(context))
        assert.strictEqual(counts, ofCreate.includes(name), name)
      }
    }
  )

  it.prop(
    "may get another: what was sealed or requested before is the same while that has its default (F18)",
    [anyCredential, accountId],
    ([credential, account_id]) => {
      const before = { ...credential, account_id }
      for (const [makeWriter, write] of [
        [makeContextEncoder, encodeSealingContext],
        [makeFingerprinted, fingerprinted]
      ] as const) {
        const written = (added_later: unknown) => JSON.stringify(makeWriter(later)({ ...before, added_later }))
        assert.strictEqual(written(false), JSON.stringify(write(before)))
        const all = [false, true, null, 0, "", [], "x"].map(written)
        assert.strictEqual(new Set(all).size, all.length)
      }
    }
  )
})
