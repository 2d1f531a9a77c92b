import { Effect, Layer } from "effect"
import type { ApiKeyHash } from "../../domain/Identifiers.ts"
import { ApiKeys, type ResolvedApiKey } from "../../port/ApiKeys.ts"
import { Database } from "../connection/Database.ts"
import { makeLookUp } from "../connection/statements.ts"

const bytesOf = (hash: ApiKeyHash) => Buffer.from(hash, "hex")

export const layer = Layer.effect(
  ApiKeys,
  Effect.gen(function* () {
    const { reads } = yield* Database
    const { ask, sql } = reads
    const find = makeLookUp<{ readonly hash: ApiKeyHash }, ResolvedApiKey, ResolvedApiKey>(reads, {
      operation: "api_keys.find",
      by: { hash: "text" },
      select: ({ hash }) => sql<ResolvedApiKey>`
        SELECT account_id, role FROM api_keys WHERE hash = decode(${hash}, 'hex') AND revoked_at IS NULL`,
      read: ({ account_id, role }) => ({ account_id, role }),
      // Requests with the same API key share a row.
      nameOf: ({ hash }) => hash
    })

    return {
      find: (hash) => find({ hash }),
      ownedBy: (account_id, hashes) =>
        Effect.map(
          ask(
            sql<{ hash: ApiKeyHash }>`
              SELECT encode(hash, 'hex') AS hash FROM api_keys
              WHERE hash = ANY(${hashes.map(bytesOf)}::bytea[]) AND account_id = ${account_id} AND revoked_at IS NULL`,
            "api_keys.owned_by",
            account_id
          ),
          (rows) => new Set(rows.map(({ hash }) => hash))
        )
    }
  })
)
