import { Effect, Layer, Option } from "effect"
import type { FoundKey } from "../port/LeakedKeys.ts"
import { Parkings } from "../port/Parkings.ts"
import { record } from "./auditing.ts"
import { Database } from "./connection/Database.ts"
import { marks } from "./leakMarks.ts"

export const layer = Layer.effect(
  Parkings,
  Effect.map(Database, ({ writes: { ask, sql } }) => ({
    clear: (id) =>
      Effect.gen(function* () {
        const [key] = yield* sql<FoundKey>`
          SELECT account_id, workspace_id, id AS credential_id, key_version FROM credentials WHERE id = ${id} FOR SHARE`
        if (key === undefined) return Option.none()
        const ended = yield* sql`
          DELETE FROM credential_parkings AS parked
          WHERE account_id = ${key.account_id} AND credential_id = ${id} AND key_version = ${key.key_version}
          AND ${marks(sql)} RETURNING 1`
        yield* record(sql, ended.length === 0 ? [] : [{ action: "credential.unpark", ...key }])
        return Option.some(key)
      }).pipe(sql.withTransaction, ask)
  }))
)
