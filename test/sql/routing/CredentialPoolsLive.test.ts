import { setTimeout } from "node:timers/promises"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Effect, Option } from "effect"
import { CredentialPools, type PoolSize } from "../../../src/port/CredentialPools.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { Database } from "../../../src/sql/connection/Database.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { openStore } from "../../support/database/stores.ts"
import { assert, describe, it } from "../../support/it.ts"

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc") as () => void

/** The longest list that a credential may have. */
const texts = Array.from({ length: 100 }, (_, n) => String(n).padEnd(255, "x"))

/** Bytes in use in this thread. Buffers are released in the background, some time after their collection. */
const heldBytes = Effect.promise(async () => {
  for (let n = 0; n < 5; n++) {
    collect()
    await setTimeout(50)
  }
  const { external, heapUsed } = process.memoryUsage()
  return external + heapUsed
})

describe("a pool of credentials in the database", () => {
  it.live.each([
    ["long", texts, (bytes: number) => [bytes, 2 * bytes]],
    [
      "short",
      Array.from({ length: 100 }, (_, n) => `model ${n}`),
      // The control: without the elements, too little would be reserved.
      (bytes: number) => [2 * bytes + 3500 * 100, 2 * bytes + 3500 * 100 + 32 * 100 * 200]
    ]
  ] as const)(
    "takes no more memory once it is read than is reserved, with %s texts in lists (R4)",
    function* ([, list, limitsOf]) {
      const { ports } = yield* openStore
      yield* Effect.gen(function* () {
        const owner = yield* newTenant
        const { insert } = yield* CredentialRepository
        const { load } = yield* CredentialPools
        const lists = { allowed_models: list, allowed_user_ids: list }
        for (let n = 0; n < 100; n++) {
          yield* insert(owner.account_id, { ...plainCredential(owner.workspace_id), ...lists }, plainSealedKey(1))
        }
        let elements = 0
        const admit = (size: PoolSize) => Effect.sync(() => void (elements = size.elements))
        const loaded = [Option.getOrThrow(yield* load(owner, "openai", undefined, admit))]
        const bytes = loaded[0]?.bytes ?? 0
        const held = yield* heldBytes
        assert.lengthOf(loaded.pop()?.rows ?? [], 100)
        const taken = held - (yield* heldBytes)
        assert.strictEqual(elements, 100 * 200)
        const [control = 0, limit = 0] = limitsOf(bytes)
        assert.isAbove(taken, control, "control")
        assert.isBelow(taken, limit)
      }).pipe(Effect.provide(ports))
    }
  )

  it.live("can be loaded even if the parkings of its keys take 20 MB together", function* () {
    const { ports, sql } = yield* openStore
    yield* Effect.gen(function* () {
      const owner = yield* newTenant
      const { insert } = yield* CredentialRepository
      const { load } = yield* CredentialPools
      for (let n = 0; n < 20; n++) {
        yield* insert(owner.account_id, plainCredential(owner.workspace_id), plainSealedKey(1))
      }
      yield* sql`
          INSERT INTO credential_parkings
          SELECT account_id, id, repeat('m', 100000) || n, 1, 'rate_limited', 1, now() + interval '1 minute', now(), 0
          FROM credentials, generate_series(1, 10) AS n`
      const whole = Option.getOrThrow(yield* load(owner, "openai"))
      const parkings = Option.getOrThrow(yield* load(owner, "openai", whole.version))
      assert.lengthOf(whole.rows ?? [], 20)
      assert.isUndefined(parkings.rows)
      for (const found of [whole.parkings, parkings.parkings]) {
        assert.deepStrictEqual(
          Array.from(found.values(), ({ length }) => length),
          Array.from({ length: 20 }, () => 10)
        )
      }
    }).pipe(Effect.provide(ports))
  })

  it.live("has its version read by prepared statements that PostgreSQL plans only once", function* () {
    const { ports } = yield* openStore
    yield* Effect.gen(function* () {
      const owner = yield* newTenant
      const { versions } = yield* CredentialPools
      const { sql } = (yield* Database).reads
      const { account_id } = owner
      for (let n = 0; n < 20; n++) for (const one of [owner, { account_id }]) yield* versions(one, ["openai", "azure"])
      const [asked] = yield* sql<{ readonly fewest: number; readonly statements: number }>`
          SELECT min(generic_plans)::int AS fewest, count(*)::int AS statements FROM pg_prepared_statements
          WHERE statement LIKE '%AS states%' AND statement NOT LIKE '%pg_prepared%'`
      assert.deepStrictEqual(asked, { fewest: 15, statements: 2 })
    }).pipe(Effect.provide(ports))
  })
})
