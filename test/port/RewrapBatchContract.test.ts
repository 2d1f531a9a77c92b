import { Effect, Layer, Option, Result } from "effect"
import { KekRegistry, type Rewrapper } from "../../src/port/KekRegistry.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { type Made, sealUnder } from "../support/keys/rotating.ts"
import { stores } from "../support/database/stores.ts"
import { assert, describe, it } from "../support/it.ts"

const primary = "new"
const wrapped_dek = new Uint8Array(60).fill(7)
const accept: Rewrapper["Service"]["rewrap"] = ({ sealed }) => {
  assert.deepStrictEqual(Array.from(sealed), [1, 1], "no more of it is read")
  return Result.succeed({ kek_id: primary, wrapped_dek })
}

const stored = Effect.fnUntraced(function* ({ account_id, id }: Made) {
  const repository = yield* CredentialRepository
  return Option.getOrThrow(yield* repository.findSealed(account_id, id))
})

for (const [name, store] of stores) {
  const fresh = Layer.fresh(store)

  describe(`rewrapBatch ${name} (docs/keys.md, Rotate the keyring)`, () => {
    it.live("replaces only the key id and the wrapped key of each credential", () =>
      Effect.gen(function* () {
        const made = yield* sealUnder(ringOf("old"), 3)
        const before = yield* Effect.forEach(made, stored)
        const { rewrapBatch } = yield* KekRegistry
        const done = yield* rewrapBatch({ primary, after: undefined, size: 10 }, accept)
        assert.deepStrictEqual(done, { rewrapped: 3, failed: [], next: undefined })
        const after = yield* Effect.forEach(made, stored)
        assert.deepEqual(
          after,
          before.map((row) => ({ ...row, sealed: { ...row.sealed, kek_id: primary, wrapped_dek } }))
        )
        const again = yield* rewrapBatch({ primary, after: undefined, size: 10 }, accept)
        assert.deepStrictEqual(again, { rewrapped: 0, failed: [], next: undefined })
      }).pipe(Effect.provide(fresh))
    )
  })
}
