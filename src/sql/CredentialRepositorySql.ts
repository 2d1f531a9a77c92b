import { DateTime, Effect, Layer, Option } from "effect"
import type { AccountId } from "../domain/AccountId.ts"
import { CurrentActor } from "../domain/Actor.ts"
import type { Credential } from "../domain/Credential.ts"
import type { CredentialId } from "../domain/CredentialId.ts"
import { CredentialRepository } from "../port/CredentialRepository.ts"
import { WorkspaceGone } from "../port/WorkspaceGone.ts"
import { Prefetched } from "../port/Prefetched.ts"
import { recordMade } from "./auditing.ts"
import { Database } from "./connection/Database.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"
import {
  auditedOf,
  columns,
  type Creation,
  credentialOf,
  findStored,
  hasHome,
  homeOf,
  firstOrder,
  newColumns,
  type NewRow,
  OpenableRow,
  Order,
  sealedColumns,
  type Stored,
  toJson
} from "./credentialRows.ts"
import { firstRowOf, rowsOf } from "./rows.ts"

interface Key {
  readonly account_id: AccountId
  readonly id: CredentialId
}

const parameterOf = (value: NewRow[keyof NewRow]) => (DateTime.isDateTime(value) ? DateTime.toDate(value) : value)

/** Roughly how many bytes the fields of unbounded length add to a statement. */
const sizeOf = ({ allowed_models, allowed_user_ids, sealed }: NewRow) =>
  [...(allowed_models ?? []), ...(allowed_user_ids ?? [])].reduce((sum, { length }) => sum + length, 2 * sealed.length)

/** Statements name their columns: the sealed key leaves the database only where it is asked for. */
export const layer = Layer.effect(
  CredentialRepository,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const firstSealed = firstRowOf(OpenableRow)
    const orders = rowsOf(Order)

    const find = reads.gather<Key, Option.Option<Credential>>({
      one: ({ account_id, id }) => {
        const { sql } = reads
        const found = sql<Stored>`
          SELECT account_id, ${sql.csv(columns)} FROM credentials WHERE id = ${id} AND account_id = ${account_id}`
        return Effect.map(found, ([row]) => Option.map(Option.fromUndefinedOr(row), credentialOf))
      },
      many: (keys) => {
        const { sql } = reads
        const ids = keys.map(({ id }) => id)
        const accounts = keys.map(({ account_id }) => account_id)
        const found = sql<Stored>`
          SELECT account_id, ${sql.csv(columns)} FROM credentials
          JOIN unnest(${ids}::uuid[], ${accounts}::uuid[]) AS wanted (id, account_id) USING (id, account_id)`
        return Effect.map(found, (rows) => {
          const byKey = new Map(rows.map((row) => [`${row.account_id} ${row.id}`, credentialOf(row)]))
          return keys.map(({ account_id, id }) => Option.fromUndefinedOr(byKey.get(`${account_id} ${id}`)))
        })
      }
    })

    const insert = writes.gather<Creation, Option.Option<typeof Order.Type>>({
      sizeOf: ({ row }) => sizeOf(row),
      one: (creation) => {
        const { sql } = writes
        const { row } = creation
        const values = newColumns.map((column) => sql`${parameterOf(row[column])}`)
        const inserted = firstOrder(sql`
          WITH home AS (${homeOf(sql, [row])}), made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            SELECT ${sql.csv(values)}, (
              SELECT coalesce(max(sort_order) + 1, 0) FROM credentials
              WHERE workspace_id = ${row.workspace_id} AND provider = ${row.provider}
            ) FROM home
            ON CONFLICT (id) DO NOTHING RETURNING id, sort_order
          ), recorded AS (${recordMade(sql, [auditedOf(creation)])})
          SELECT id, sort_order FROM made`)
        return Effect.flatMap(inserted, (order) =>
          Option.isSome(order) ? Effect.succeed(order) : findStored(sql, row)
        )
      },
      many: (creations) => {
        const { sql } = writes
        const rows = creations.map(({ row }) => row)
        const inserted = orders(sql`
          WITH home AS (${homeOf(sql, rows)}), made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            SELECT ${sql.csv(newColumns)}, (
              SELECT coalesce(max(sort_order) + 1, 0) FROM credentials
              WHERE workspace_id = given.workspace_id AND provider = given.provider
            ) + row_number() OVER (PARTITION BY workspace_id, provider) - 1
            FROM json_populate_recordset(NULL::credentials, ${toJson(rows)}::json) AS given
            WHERE EXISTS (SELECT FROM home WHERE home_id = workspace_id AND home_account_id = account_id)
            ON CONFLICT (id) DO NOTHING RETURNING id, sort_order
          ), recorded AS (${recordMade(sql, creations.map(auditedOf))})
          SELECT id, sort_order FROM made`)
        return Effect.flatMap(inserted, (found) => {
          const byId = new Map(found.map((order) => [order.id, order]))
          return Effect.forEach(rows, (row) => {
            const order = byId.get(row.id)
            return order === undefined ? findStored(sql, row) : Effect.succeed(Option.some(order))
          })
        })
      }
    })
    const taken = new DatabaseFailure({ kind: "IdTaken", sqlstate: undefined, constraint: "credentials_pkey" })

    return {
      insert: (account_id, credential, sealed) =>
        CurrentActor.pipe(
          Effect.flatMap((actor) => insert({ row: { account_id, ...credential, ...sealed }, actor })),
          Effect.flatMap((order) =>
            Option.isSome(order)
              ? Effect.succeed({ ...credential, sort_order: order.value.sort_order })
              : Effect.flatMap(
                  writes.ask(hasHome(writes.sql, { account_id, ...credential, ...sealed })),
                  (found): Effect.Effect<never, WorkspaceGone> =>
                    found ? Effect.die(taken) : Effect.fail(new WorkspaceGone())
                )
          )
        ),
      findById: (account_id, id) =>
        Effect.flatMap(Prefetched, (known) =>
          known?.account_id === account_id && known.credential?.id === id
            ? Effect.succeed(known.credential.found)
            : find({ account_id, id })
        ),
      findSealed: (account_id, id) => {
        const { ask, sql } = reads
        const row = firstSealed(
          sql`
            SELECT ${sql.csv(sealedColumns)}, (
              SELECT deleted_at IS NOT NULL FROM workspaces WHERE workspaces.id = workspace_id
            ) AS workspace_deleted
            FROM credentials WHERE id = ${id} AND account_id = ${account_id}`
        )
        return Effect.map(
          ask(row),
          Option.map(({ kek_id, sealed, workspace_deleted, wrapped_dek, ...credential }) => ({
            credential,
            sealed: { kek_id, sealed, wrapped_dek },
            workspace_deleted
          }))
        )
      }
    }
  })
)
