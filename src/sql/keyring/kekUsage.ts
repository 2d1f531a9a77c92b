import { DateTime, Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { countLimit } from "../../port/AuditLog.ts"
import type { KekRegistry, NamingCredential, RegisteredKey } from "../../port/KekRegistry.ts"
import { askRows } from "../connection/statements.ts"
import type { Database } from "../connection/Database.ts"

/** The ids of the keys that credentials or links name. Steps through the index from one id to the next; links are few. */
const namedKeks = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const ids: Array<string> = []
    const linked = yield* sql<{ id: string }>`SELECT DISTINCT kek_id AS id FROM links WHERE kek_id IS NOT NULL`
    for (;;) {
      const [next] = yield* sql<{ id: string | null }>`
        SELECT min(kek_id) AS id FROM credentials WHERE kek_id > ${ids.at(-1) ?? ""}`
      if (typeof next?.id !== "string") return Array.from(new Set([...ids, ...linked.map(({ id }) => id)]))
      ids.push(next.id)
    }
  })

/** Counts the credentials and links that name a key, up to `limit`. BETWEEN makes PostgreSQL use the index, unlike an equality. */
export const countNaming = (sql: SqlClient.SqlClient, kek_id: string, limit?: number) => {
  const most = sql.literal(limit === undefined ? "ALL" : String(limit))
  return Effect.map(
    sql<{ n: number }>`
      SELECT count(*)::int AS n FROM (
        (SELECT 1 FROM credentials WHERE kek_id BETWEEN ${kek_id} AND ${kek_id} ORDER BY kek_id LIMIT ${most})
        UNION ALL (SELECT 1 FROM links WHERE kek_id = ${kek_id}) LIMIT ${most}
      ) AS naming`,
    ([row]) => row?.n ?? 0
  )
}

interface RegisteredRow {
  readonly kek_id: string
  readonly wraps: number
  readonly registered_at: Date | null
}
interface UsageRow extends RegisteredRow {
  readonly retired: boolean
}

const registeredKey = ({ kek_id, registered_at, wraps }: RegisteredRow): RegisteredKey => ({
  kek_id,
  wraps,
  ...(registered_at === null ? {} : { registered_at: DateTime.fromDateUnsafe(registered_at) })
})

const capped = (credentials: number) =>
  credentials > countLimit ? { credentials: countLimit, more_credentials: true as const } : { credentials }

export const kekUsage = ({
  background,
  reads
}: Database["Service"]): Pick<KekRegistry["Service"], "list" | "live" | "countMissing" | "findNaming"> => ({
  list: reads.ask(
    Effect.gen(function* () {
      const { sql } = reads
      const rows = yield* sql<UsageRow>`
        SELECT id AS kek_id, wraps::float8 AS wraps, retired_at IS NOT NULL AS retired, registered_at FROM keks`
      const known = new Map(rows.map((row) => [row.kek_id, row]))
      const named = yield* namedKeks(sql)
      const ids = Array.from(new Set([...named, ...known.keys()])).sort()
      return yield* Effect.forEach(ids, (kek_id) =>
        Effect.map(countNaming(sql, kek_id, countLimit + 1), (credentials) => {
          const { retired, ...row } = known.get(kek_id) ?? { kek_id, wraps: 0, retired: false, registered_at: null }
          return { ...registeredKey(row), ...capped(credentials), retired }
        })
      )
    }),
    "keks.list"
  ),
  live: Effect.map(
    askRows(reads, "keks.live")<RegisteredRow>`
      SELECT id AS kek_id, wraps::float8 AS wraps, registered_at FROM keks WHERE retired_at IS NULL`,
    (rows) => rows.map(registeredKey)
  ),
  countMissing: (kek_ids, limit) =>
    background.probe(
      Effect.flatMap(namedKeks(background.sql), (named) =>
        Effect.forEach(
          named.filter((id) => !kek_ids.includes(id)),
          (kek_id) => Effect.map(countNaming(background.sql, kek_id, limit), (credentials) => ({ kek_id, credentials }))
        )
      ),
      "keks.missing"
    ),
  findNaming: (kek_ids, limit) => askRows(reads, "keks.naming")<NamingCredential>`
    SELECT kek_id, account_id, workspace_id, id AS credential_id FROM credentials
    WHERE kek_id = ANY(${kek_ids}::text[]) ORDER BY kek_id, id LIMIT ${limit}`
})
