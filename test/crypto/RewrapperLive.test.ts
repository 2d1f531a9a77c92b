import { Effect, Layer } from "effect"
import * as CipherLive from "../../src/crypto/CipherLive.ts"
import { WrapBudget } from "../../src/crypto/WrapBudget.ts"
import { Rewrapper } from "../../src/port/KekRegistry.ts"
import { fixedKeyring, ringOf } from "../support/keys/keyrings.ts"
import { assert, describe, it } from "../support/it.ts"

const rewrapperWith = (ring: string) =>
  Effect.provide(
    Rewrapper,
    CipherLive.rewrapper.pipe(
      Layer.provide([fixedKeyring(ring), Layer.succeed(WrapBudget, { spend: () => Effect.void })])
    )
  )

describe("a rewrapper (T10; docs/keys.md, Rotate the keyring)", () => {
  it.effect("lists the keys of the keyring, the first one as primary", function* () {
    const { kek_ids, primary } = yield* rewrapperWith(ringOf("new", "old", "older"))
    assert.deepStrictEqual([primary, ...kek_ids], ["new", "new", "old", "older"])
  })
})
