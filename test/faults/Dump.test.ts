import { PgClient } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Reactivity } from "effect/reactivity"
import { createHash, randomBytes } from "node:crypto"
import { join } from "node:path"
import { isDeepStrictEqual } from "node:util"
import { createOver, idIn } from "../support/callByok.ts"
import { filesHolding } from "../support/filesHolding.ts"
import { newDirectory, startFirst } from "../support/firstStart.ts"
import { formsOf } from "../support/formsOf.ts"
import { startService } from "../support/ServiceProcess.ts"

const reversed = (text: string) => Array.from(text).reverse().join("")

/** How a secret may lie in a dump: also reversed, and as a part of a URL. */
const dumpedFormsOf = (secret: string): ReadonlyArray<string> => {
  const bytes = Buffer.from(secret)
  return [
    ...new Set([
      ...formsOf(secret),
      ...formsOf(reversed(secret)),
      encodeURIComponent(secret),
      encodeURIComponent(secret).toLowerCase(),
      new URLSearchParams({ "": secret }).toString().slice(1),
      bytes.toString("hex").toUpperCase()
    ])
  ]
}

/** A key that nothing holds by chance, with characters that URLs encode. Label and characters around it are its own. */
const newKey = () => `sk-/${randomBytes(15).toString("base64url")}+=${randomBytes(9).toString("base64url")}`

describe("whoever has every file of the database, its write-ahead log, and its log of all statements", () => {
  it.live("finds no key in any form, nor which keys are equal; a planted one is found in every form (T1)", () =>
    Effect.gen(function* () {
      const settings = yield* newDirectory
      const database = Effect.provide(
        PgClient.make({ host: join(settings.BYOK_DATA_DIR, "socket"), username: "byok", database: "postgres" }),
        Reactivity.layer
      )
      const token = yield* Effect.scoped(
        Effect.gen(function* () {
          const { key } = yield* startFirst(settings)
          const sql = yield* database
          yield* sql`ALTER SYSTEM SET log_statement = 'all'`
          yield* sql`ALTER SYSTEM SET logging_collector = on`
          return key
        })
      )
      const { url } = yield* startService(settings)
      const sql = yield* database
      const [twice, other] = [newKey(), newKey()]
      const names = ["one", "the same", "another"]
      const keys = [twice, twice, other.slice(0, -4) + twice.slice(-4)]
      const material = newKey()
      const ids = yield* Effect.forEach([...keys, JSON.stringify({ api_key: material })], (key, index) =>
        Effect.map(createOver(url, token, { provider: "openai", key, name: names[index] ?? "more" }), (answer) => {
          assert.strictEqual(answer.status, 201)
          return idIn(answer)
        })
      )
      yield* createOver(url, token, { provider: "nobody's", key: twice })
      const idempotencyKeys = ["one", "other"].map((name) => `${name}-${randomBytes(15).toString("hex")}`)
      const repeated = { provider: "groq", key: newKey() }
      for (const key of [...idempotencyKeys, ...idempotencyKeys]) {
        assert.strictEqual((yield* createOver(url, token, repeated, key)).status, 201)
      }
      yield* sql`CHECKPOINT`

      const secrets = [...new Set([...keys, material, token, repeated.key])]
      const holding = (texts: ReadonlyArray<string | Buffer>) => filesHolding(settings.BYOK_DATA_DIR, texts)
      assert.deepStrictEqual(holding([...secrets.flatMap(dumpedFormsOf), ...idempotencyKeys.flatMap(formsOf)]), [])
      const body = JSON.stringify(repeated)
      const hashed = [repeated.key, body, JSON.stringify({ key: repeated.key, provider: "groq" }), ...idempotencyKeys]
      const digests = hashed.map((text) => createHash("sha256").update(text).digest())
      assert.deepStrictEqual(holding(digests.flatMap((digest) => [digest, digest.toString("hex")])), [])
      assert.isNotEmpty(holding([createHash("sha256").update(token).digest()]), "control: tokens are stored so")
      const receipts = yield* sql<Record<string, unknown>>`SELECT * FROM receipts`
      assert.lengthOf(receipts, 2)
      for (const column of ["key_hash", "fingerprint", "credential_id"]) {
        assert.lengthOf(new Set(receipts.map((row) => JSON.stringify(row[column]))), 2, column)
      }

      const logs = holding(["INSERT INTO credentials"])
      assert.isTrue(
        logs.some((file) => file.includes("/postgres/log/")),
        "control: statements are logged"
      )
      assert.isTrue(
        holding(["the same"]).some((file) => file.includes("/pg_wal/")),
        "control: the write-ahead log is read"
      )

      const rows = yield* sql<Record<string, unknown>>`SELECT * FROM credentials`
      const [one, same, another] = ids.map((id) => rows.find((row) => row["id"] === id) ?? {})
      const equalColumns = (left = {}, right = {}) =>
        Object.keys(left).filter((name) =>
          isDeepStrictEqual(Reflect.get(left, name) as unknown, Reflect.get(right, name) as unknown)
        )
      assert.deepStrictEqual(equalColumns(one, same), equalColumns(one, another))
      assert.notInclude(equalColumns(one, same), "sealed")
      assert.notInclude(equalColumns(one, same), "wrapped_dek")
      assert.include(equalColumns(one, one), "sealed", "control")

      for (const form of dumpedFormsOf(twice)) {
        yield* sql`UPDATE credentials SET name = ${form} WHERE id = ${ids[0] ?? ""}`
        yield* sql`CHECKPOINT`
        assert.isNotEmpty(holding([form]), "control")
      }
    })
  )
})
