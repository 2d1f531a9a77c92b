import { Effect } from "effect"
import { Store } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { keysOf, openedWith, rotationWith, sealUnder } from "../../support/keys/rotating.ts"
import { assert, describe, it } from "../../support/it.ts"

const ring = ringOf("new", "old")

describe("the limits of sealing (T2c; SECURITY.md, Out of scope)", () => {
  it.live("a whole older row that replaces the newer one can be decrypted, and a mixture of both cannot", () =>
    Effect.gen(function* () {
      const { sql } = yield* Store
      const made = yield* sealUnder(ringOf("old"), 3)
      yield* sql`CREATE TABLE older AS SELECT * FROM credentials`
      yield* (yield* rotationWith(ring)).rewrap({ rate: 1_000_000, onProgress: () => Effect.void })
      assert.deepStrictEqual(yield* openedWith(ringOf("new"), made), keysOf(made))
      const [{ n } = { n: -1 }] = yield* sql<{ n: number }>`
          SELECT count(*)::int AS n FROM credentials JOIN older USING (id) WHERE credentials.wrapped_dek = older.wrapped_dek`
      assert.strictEqual(n, 0)

      yield* sql`UPDATE credentials SET wrapped_dek = older.wrapped_dek FROM older WHERE older.id = credentials.id`
      assert.deepStrictEqual(
        yield* openedWith(ring, made),
        made.map(() => "AuthenticationFailed")
      )

      yield* sql`DELETE FROM credentials`
      yield* sql`INSERT INTO credentials SELECT * FROM older`
      assert.deepStrictEqual(yield* openedWith(ring, made), keysOf(made))
    }).pipe(Effect.provide(Store.layer))
  )
})
