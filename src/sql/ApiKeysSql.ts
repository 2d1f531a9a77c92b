import { Effect, Layer, Option, Schema } from "effect"
import { AccountId } from "../domain/AccountId.ts"
import { ApiKeyHash } from "../domain/ApiKeyHash.ts"
import { ApiKeys } from "../port/ApiKeys.ts"
import { Database } from "./connection/Database.ts"
import { firstRowOf, rowsOf } from "./rows.ts"

const Key = Schema.Struct({ account_id: AccountId, management: Schema.Boolean })
type Key = typeof Key.Type

const bytes = (hash: ApiKeyHash) => Buffer.from(hash, "hex")

export const layer = Layer.effect(
  ApiKeys,
  Effect.gen(function* () {
    const { ask, gather, sql } = (yield* Database).reads
    const firstKey = firstRowOf(Key)
    const keys = rowsOf(Schema.Struct({ hash: ApiKeyHash, ...Key.fields }))
    const hashes = rowsOf(Schema.Struct({ hash: ApiKeyHash }))

    const find = gather<ApiKeyHash, Option.Option<Key>>({
      one: (hash) =>
        firstKey(sql`SELECT account_id, management FROM api_keys WHERE hash = ${bytes(hash)} AND revoked_at IS NULL`),
      many: (wanted) => {
        const found = keys(sql`
          SELECT encode(hash, 'hex') AS hash, account_id, management FROM api_keys
          WHERE hash = ANY(${Array.from(new Set(wanted), bytes)}::bytea[]) AND revoked_at IS NULL`)
        return Effect.map(found, (rows) => {
          const byHash = new Map(rows.map((row) => [row.hash, row]))
          return wanted.map((hash) => Option.fromUndefinedOr(byHash.get(hash)))
        })
      }
    })
    return {
      find,
      ownedBy: (account_id, wanted) =>
        Effect.map(
          ask(
            hashes(sql`
              SELECT encode(hash, 'hex') AS hash FROM api_keys
              WHERE hash = ANY(${wanted.map(bytes)}::bytea[]) AND account_id = ${account_id} AND revoked_at IS NULL`)
          ),
          (rows) => new Set(rows.map(({ hash }) => hash))
        )
    }
  })
)
