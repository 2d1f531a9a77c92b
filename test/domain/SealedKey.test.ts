import { Arbitrary, Struct } from "effect"
import { memberNames, members } from "../../src/domain/Credential.ts"
import { fingerprintMembers } from "../../src/domain/NewCredential.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import { accountId, anyCredential } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

/** Two credentials with their accounts, and for each member one that differs from the first in that alone. */
const pairs = Arbitrary.map(
  Arbitrary.all({ one: anyCredential, other: anyCredential, account_id: accountId }),
  ({ account_id, one, other }) => ({
    context: { ...one, account_id },
    changed: memberNames.map((name) => ({ name, context: { ...one, account_id, [name]: other[name] } })),
    isOther: (name: (typeof memberNames)[number]) => JSON.stringify(one[name]) !== JSON.stringify(other[name])
  })
)

const unbound = ["name", "label", "created_at", "sort_order"]
const ofCreate = [...Struct.keys(members)].filter((name) => !["id", "label", "created_at", "sort_order"].includes(name))

describe("a change of one member of a credential", () => {
  it.prop(
    "changes the fingerprint if create takes it, and the seal unless it is name, label, created_at or sort_order",
    [pairs],
    ([{ changed, context, isOther }]) => {
      for (const { context: other, name } of changed.filter(({ name }) => isOther(name))) {
        const isBound = contextOf(other) !== contextOf(context)
        assert.strictEqual(isBound, !unbound.includes(name), name)
        const counts = JSON.stringify(fingerprintMembers(other)) !== JSON.stringify(fingerprintMembers(context))
        assert.strictEqual(counts, ofCreate.includes(name), name)
      }
    }
  )
})
