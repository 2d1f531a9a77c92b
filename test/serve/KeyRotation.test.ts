import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Result, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import * as Byok from "../../src/Byok.ts"
import { CurrentCaller } from "../../src/domain/CurrentCaller.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { Accounts } from "../../src/service/Accounts.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { Readiness } from "../../src/port/Readiness.ts"
import { Rewrapper } from "../../src/port/Rewrapper.ts"
import { Rotation } from "../../src/service/Rotation.ts"
import { adminClient, freshDatabase, settingsFor } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { keysOf, type Made, openedWith, rotationWith } from "../support/keys/rotating.ts"
import type { Parts } from "../support/http/TestService.ts"

type Instance = Context.Context<Parts>
const rate = 1_000_000

/** An instance of the service with this keyring, next to others on the same database. */
const startInstance = (url: string, ...ids: ReadonlyArray<string>) =>
  Effect.orDie(Layer.build(Layer.fresh(Byok.layerWith(settingsFor(url, ringOf(...ids))))))

const created = Effect.fnUntraced(function* (instance: Instance, account_id: Made["account_id"], key: string) {
  const input = yield* Schema.decodeUnknownEffect(NewCredential)({ provider: "groq", key })
  const { id } = yield* Effect.flatMap(Credentials, ({ create }) => create(input)).pipe(
    Effect.provideService(CurrentCaller, { account_id }),
    Effect.provide(instance)
  )
  return { account_id, id, key } satisfies Made
})

const got = (instance: Instance, { account_id, id }: Made) =>
  Effect.flatMap(Credentials, ({ get }) => get(id)).pipe(
    Effect.provideService(CurrentCaller, { account_id }),
    Effect.provide(instance)
  )

const problems = (instance: Instance) => Context.get(instance, Readiness).problems

const sealedBytes = (sql: SqlClient.SqlClient) =>
  sql<{ id: string; sealed: string }>`SELECT id, encode(sealed, 'hex') AS sealed FROM credentials ORDER BY id`

const begin = Effect.gen(function* () {
  const url = yield* freshDatabase
  const sql = yield* adminClient(url)
  const before = yield* startInstance(url, "old")
  const { account_id } = yield* Effect.flatMap(Accounts, (_) => _.createAccount("n")).pipe(Effect.provide(before))
  const made = yield* Effect.forEach([1, 2, 3, 4, 5], (n) => created(before, account_id, `fake-key-before-${n}`))
  return { url, sql, before, account_id, made }
})

/** What the retired key alone opens: with the rows as they are, and if they are forged to name it. */
const openedByRetired = (instance: Instance, made: ReadonlyArray<Made>) =>
  Effect.gen(function* () {
    const asNamed = yield* openedWith(ringOf("old"), made)
    const forged = yield* openedWith(ringOf("old"), made, "old")
    return [...asNamed, ...forged].filter((opened) => keysOf(made).includes(opened))
  }).pipe(Effect.provide(instance))

describe("a rotation of the key-encryption key (T10)", () => {
  it.live("pending, primary, rewrapped, retired: always ready, everything opens, nothing with the retired key", () =>
    Effect.gen(function* () {
      const { account_id, before, made, sql, url } = yield* begin
      const pending = yield* startInstance(url, "old", "new")
      const primary = yield* startInstance(url, "new", "old")
      made.push(
        yield* created(before, account_id, "fake-key-old"),
        yield* created(pending, account_id, "fake-key-pending")
      )
      made.push(yield* created(primary, account_id, "fake-key-primary"))
      for (const instance of [pending, primary]) {
        assert.deepStrictEqual(yield* problems(instance), [])
        for (const one of made) assert.strictEqual((yield* got(instance, one)).id, one.id)
      }
      for (const ring of [ringOf("old", "new"), ringOf("new", "old")]) {
        assert.deepStrictEqual(yield* Effect.provide(openedWith(ring, made), primary), keysOf(made))
      }
      const sealed = yield* sealedBytes(sql)

      const running = yield* Effect.forkChild(
        Effect.provide(
          Effect.flatMap(rotationWith(ringOf("new", "old")), ({ rewrap }) => rewrap({ batch: 2, rate: 20 })),
          primary
        )
      )
      const during: Array<Made> = []
      while (running.pollUnsafe() === undefined) {
        const one = yield* created(primary, account_id, `fake-key-during-${during.length}`)
        during.push(one)
        for (const instance of [pending, primary]) assert.strictEqual((yield* got(instance, one)).id, one.id)
        for (const one of made) assert.strictEqual((yield* got(pending, one)).id, one.id)
        assert.deepStrictEqual(yield* Effect.provide(openedWith(ringOf("old", "new"), made), primary), keysOf(made))
      }
      assert.deepStrictEqual(yield* Fiber.join(running), { rewrapped: 7, left: 0, failed: [] })
      assert.isAbove(during.length, 0)

      const all = [...made, ...during]
      assert.includeDeepMembers([...(yield* sealedBytes(sql))], [...sealed], "what is sealed stays as it was")
      assert.lengthOf(yield* sql`SELECT 1 FROM credentials WHERE kek_id <> 'new'`, 0)
      const retired = yield* startInstance(url, "new")
      assert.deepStrictEqual(yield* problems(retired), [])
      assert.deepStrictEqual(yield* Effect.provide(openedWith(ringOf("new"), all), retired), keysOf(all))
      for (const one of all) assert.strictEqual((yield* got(retired, one)).id, one.id)
      assert.deepStrictEqual(yield* openedByRetired(retired, all), [])
      all.push(yield* created(retired, account_id, "fake-key-after"))
      assert.deepStrictEqual(yield* Effect.provide(openedWith(ringOf("new"), all), retired), keysOf(all))
    })
  )

  it.live(
    "before the rewrap, and after one that only changes the key ids, the retired key opens everything (control)",
    () =>
      Effect.gen(function* () {
        const { before, made, sql, url } = yield* begin
        const primary = yield* startInstance(url, "new", "old")
        const keys = keysOf(made)
        assert.deepStrictEqual(yield* openedByRetired(before, made), [...keys, ...keys])

        const naming = Layer.succeed(Rewrapper, {
          primary: "new",
          kek_ids: ["new", "old"],
          spend: () => Effect.void,
          rewrap: ({ wrapped_dek }) => Effect.succeed(Result.succeed({ kek_id: "new", wrapped_dek }))
        })
        const broken = Effect.provide(Rotation, Layer.provide(Rotation.layer, naming))
        const result = yield* Effect.provide(
          Effect.flatMap(broken, ({ rewrap }) => rewrap({ rate })),
          primary
        )
        assert.deepStrictEqual(result, { rewrapped: 5, left: 0, failed: [] })
        assert.lengthOf(yield* sql`SELECT 1 FROM credentials WHERE kek_id <> 'new'`, 0)
        assert.deepStrictEqual(yield* openedByRetired(before, made), keys, "by forged name")
        assert.notDeepEqual(yield* Effect.provide(openedWith(ringOf("new"), made), primary), keys)
      })
  )
})
