import { Effect, Layer, Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import { CurrentActor } from "../domain/CurrentCaller.ts"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import { CredentialRepository, WorkspaceGone } from "../port/CredentialRepository.ts"
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
  firstOrder,
  givenRow,
  homeOf,
  homesOf,
  KeyedOrder,
  newColumns,
  nextOrder,
  OpenableRow,
  type Order,
  sealedColumns,
  sizeOf,
  type Stored,
  toJson,
  valuesOf
} from "./credentialRows.ts"
import { deleteCredential } from "./deleteCredential.ts"
import { isMarked } from "./leakMarks.ts"
import { listCredentials } from "./listCredentials.ts"
import { reorderCredentials } from "./reorderCredentials.ts"
import { firstRowOf, rowsOf } from "./rows.ts"
import { scanCredentials } from "./scanCredentials.ts"
import { updateCredential } from "./updateCredential.ts"

interface Key {
  readonly account_id: AccountId
  readonly id: CredentialId
}

const keyOf = ({ account_id, id }: { readonly account_id: string; readonly id: string }) => `${account_id} ${id}`

/** Statements name their columns: the sealed key leaves the database only where it is asked for. */
export const layer = Layer.effect(
  CredentialRepository,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const firstSealed = firstRowOf(OpenableRow)
    const orders = rowsOf(KeyedOrder)

    const find = reads.batch<Key, Option.Option<Credential>>({
      operation: "credentials.find",
      one: ({ account_id, id }) => {
        const { sql } = reads
        const found = sql<Stored>`
          SELECT account_id, ${sql.csv(columns)} FROM credentials WHERE account_id = ${account_id} AND id = ${id}`
        return Effect.map(found, ([row]) => Option.map(Option.fromUndefinedOr(row), credentialOf))
      },
      many: (keys) => {
        const { sql } = reads
        const ids = keys.map(({ id }) => id)
        const accounts = keys.map(({ account_id }) => account_id)
        const found = sql<Stored>`
          SELECT found.* FROM unnest(${accounts}::uuid[], ${ids}::uuid[]) AS wanted (account_id, id), LATERAL (
            SELECT account_id, ${sql.csv(columns)} FROM credentials
            WHERE account_id = wanted.account_id AND id = wanted.id OFFSET 0
          ) AS found`
        return Effect.map(found, (rows) => {
          const byKey = new Map(rows.map((row) => [keyOf(row), credentialOf(row)]))
          return keys.map((key) => Option.fromUndefinedOr(byKey.get(keyOf(key))))
        })
      }
    })

    const insert = writes.batch<Creation, Option.Option<typeof Order.Type>>({
      operation: "credentials.insert",
      sizeOf: ({ row }) => sizeOf(row),
      one: (creation) => {
        const { sql } = writes
        const { row } = creation
        const inserted = firstOrder(sql`
          WITH home AS (${homeOf(sql, row)}), made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            SELECT ${valuesOf(sql, row)}, ${nextOrder(sql, row)} FROM home
            ON CONFLICT (account_id, id) DO NOTHING RETURNING id, sort_order
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
          WITH home AS (${homesOf(sql, rows)}), made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            SELECT ${sql.csv(newColumns)}, ${nextOrder(sql, givenRow(sql))}
              + row_number() OVER (PARTITION BY account_id, workspace_id, provider) - 1
            FROM json_populate_recordset(NULL::credentials, ${toJson(rows)}::json) AS given
            WHERE EXISTS (SELECT FROM home WHERE home_account_id = account_id AND home_id = workspace_id)
            ON CONFLICT (account_id, id) DO NOTHING RETURNING account_id, id, sort_order
          ), recorded AS (${recordMade(sql, creations.map(auditedOf))})
          SELECT account_id, id, sort_order FROM made`)
        return Effect.flatMap(inserted, (found) => {
          const byKey = new Map(found.map((order) => [keyOf(order), order]))
          return Effect.forEach(rows, (row) => {
            const order = byKey.get(keyOf(row))
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
                  writes.ask(hasHome(writes.sql, { account_id, ...credential, ...sealed }), "workspaces.exists"),
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
            SELECT ${sql.csv(sealedColumns)}, revision, key_version, (
              SELECT deleted_at IS NOT NULL FROM workspaces
              WHERE workspaces.account_id = credentials.account_id AND workspaces.id = workspace_id
            ) AS workspace_deleted, ${isMarked(sql, sql`credentials.account_id`, sql`credentials.id`, sql`credentials.key_version`)} AS leaked
            FROM credentials WHERE account_id = ${account_id} AND id = ${id}`
        )
        return Effect.map(
          ask(row, "credentials.find_sealed"),
          Option.map(
            ({ kek_id, key_version, leaked, revision, sealed, workspace_deleted, wrapped_dek, ...credential }) => ({
              credential,
              sealed: { kek_id, sealed, wrapped_dek },
              revision,
              key_version,
              workspace_deleted,
              leaked
            })
          )
        )
      },
      list: listCredentials(reads),
      update: updateCredential(writes),
      delete: deleteCredential(writes),
      scan: scanCredentials(reads),
      reorder: reorderCredentials(writes)
    }
  })
)
