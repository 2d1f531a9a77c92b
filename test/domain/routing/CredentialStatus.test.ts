import { type CredentialStatus, stateOf, type Parking } from "../../../src/domain/routing/CredentialStatus.ts"
import type { Seal } from "../../../src/domain/routing/Pool.ts"
import { assert, describe, it } from "../../support/it.ts"

const seals: ReadonlyArray<readonly [Seal, boolean]> = [
  ["verified", true],
  ["unverified", true],
  ["altered", false],
  ["unknown_key", false],
  ["unsupported", false]
]
const limited: Parking = { model: "openai/gpt-4o", cause: "rate_limited", since: 1, until: 2 }
const rejected: Parking = { model: null, cause: "rejected", since: 1, until: 2 }
const leaked: Parking = { model: null, cause: "leaked", since: 1, until: null }

describe("the state of a credential", () => {
  it("is the gravest one that applies, whatever the order of its cooldowns and leaks (C8)", () => {
    for (const [seal, isReadable] of seals)
      for (const disabled of [true, false])
        for (const isLeaked of [true, false])
          for (const cooldowns of [[], [limited], [rejected], [limited, rejected]])
            for (const failing of [true, false]) {
              const parkings = [...cooldowns, ...(isLeaked ? [leaked] : [])]
              const expected: CredentialStatus["state"] = !isReadable
                ? "unreadable"
                : isLeaked
                  ? "leaked"
                  : disabled
                    ? "disabled"
                    : cooldowns.length > 0
                      ? "parked"
                      : failing
                        ? "failing"
                        : "active"
              assert.strictEqual(stateOf({ disabled }, seal, parkings, failing), expected)
              assert.strictEqual(stateOf({ disabled }, seal, parkings.toReversed(), failing), expected)
            }
  })
})
