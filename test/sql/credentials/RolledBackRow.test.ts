import { Effect } from "effect"
import { Store } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { keysOf, openedWith, rotationWith, sealUnder } from "../../support/keys/rotating.ts"
import { assert, describe, it } from "../../support/it.ts"

const ring = ringOf("new", "old")

describe("a row of an older copy of the database (T2c, L12; SECURITY.md, Out of scope)", () => {
  it.live("opens whole with its old key only, and not mixed with the row that a rewrap made", () =>
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
      for (const [claimed, failure] of [
        ["old", "UnknownKeyId"],
        ["new", "AuthenticationFailed"]
      ] as const) {
        const opened = yield* openedWith(ringOf("new"), made, claimed)
        assert.deepStrictEqual(opened, [failure, failure, failure], "once the old key is destroyed")
      }
    }).pipe(Effect.provide(Store.layer))
  )
})
