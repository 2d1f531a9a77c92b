import { Effect, Layer, Option } from "effect"
import type { Statement } from "effect/sql"
import { CurrentActor } from "../domain/CurrentCaller.ts"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import { Prefetched } from "../port/ApiKeys.ts"
import { CredentialRepository, MaxCredentials, type StoredCredential } from "../port/CredentialRepository.ts"
import { recordInsert, recordInserts } from "./auditing.ts"
import { compileOnce } from "./connection/compileOnce.ts"
import { Database } from "./connection/Database.ts"
import type { Operation } from "./connection/Query.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"
import {
  type Assigned,
  assignedTo,
  auditedOf,
  columns,
  type Creation,
  credentialOf,
  insertParameters,
  insertValues,
  newColumns,
  sealedColumns,
  sizeOf,
  type Stored,
  targetOf,
  targetsOf,
  toJson,
  whyRefused
} from "./credentialRows.ts"
import { insertRouted } from "./insertRouted.ts"
import { deleteCredential } from "./deleteCredential.ts"
import { listCredentials, scanCredentials } from "./listCredentials.ts"
import { isMarked } from "./ParkingsLive.ts"
import { reorderCredentials } from "./reorderCredentials.ts"
import { type CredentialKey, cursorOf } from "./rowOrder.ts"
import { updateCredential } from "./updateCredential.ts"

interface Wanted {
  readonly account_id: AccountId
  readonly id: CredentialId
}

type StoredSealed = Stored &
  SealedKey &
  Pick<StoredCredential, "revision" | "key_version" | "workspace_deleted" | "leaked">

/** Statements name their columns: the sealed key leaves the database only where it is asked for. */
export const layer = Layer.effect(
  CredentialRepository,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const limit = yield* MaxCredentials

    const { sql } = reads
    /** Finds rows by their keys, alone or in batches. */
    const finding = <Row extends CredentialKey, A>(
      operation: Operation,
      select: (account_id: Statement.Fragment, id: Statement.Fragment) => Statement.Statement<Row>,
      read: (row: Row) => A
    ) => {
      const alone = compileOnce(sql, ["account_id", "id"], (key) => select(sql`${key.account_id}`, sql`${key.id}`))
      return reads.batch<Wanted, Option.Option<A>>({
        operation,
        one: ({ account_id, id }) =>
          Effect.map(alone({ account_id, id }), ([row]) => Option.map(Option.fromUndefinedOr(row), read)),
        many: (keys) => {
          const ids = keys.map(({ id }) => id)
          const accounts = keys.map(({ account_id }) => account_id)
          const found = sql<Row>`
            SELECT found.* FROM unnest(${accounts}::uuid[], ${ids}::uuid[]) AS wanted (account_id, id),
              LATERAL (${select(sql`wanted.account_id`, sql`wanted.id`)} OFFSET 0) AS found`
          return Effect.map(found, (rows) => {
            const byKey = new Map(rows.map((row) => [cursorOf(row), row]))
            return keys.map((key) => Option.map(Option.fromUndefinedOr(byKey.get(cursorOf(key))), read))
          })
        }
      })
    }
    const find = finding(
      "credentials.find",
      (account_id, id) => sql<Stored>`
        SELECT account_id, ${sql.csv(columns)} FROM credentials WHERE account_id = ${account_id} AND id = ${id}`,
      credentialOf
    )
    const findSealed = finding(
      "credentials.find_sealed",
      (account_id, id) => sql<StoredSealed>`
        SELECT account_id, ${sql.csv(sealedColumns)}, revision, key_version, (
          SELECT deleted_at IS NOT NULL FROM workspaces
          WHERE workspaces.account_id = ${account_id} AND workspaces.id = workspace_id
        ) AS workspace_deleted, ${isMarked(sql, account_id, sql`credentials.id`, sql`credentials.key_version`)} AS leaked
        FROM credentials WHERE account_id = ${account_id} AND id = ${id}`,
      ({
        kek_id,
        key_version,
        leaked,
        revision,
        sealed,
        workspace_deleted,
        wrapped_dek,
        ...stored
      }): StoredCredential => ({
        credential: credentialOf(stored),
        sealed: { kek_id, sealed, wrapped_dek },
        revision,
        key_version,
        workspace_deleted,
        leaked
      })
    )

    const insertOne = compileOnce(writes.sql, insertParameters, (row) => {
      const { sql } = writes
      return sql<Assigned>`
        WITH target AS (${targetOf(sql, row, limit)}), inserted AS (
          INSERT INTO credentials (${sql.csv(newColumns)}, sort_order, created_at)
          SELECT ${sql.csv(newColumns.map((column) => sql`${row[column]}`))}, next_order,
            date_trunc('milliseconds', now())
          FROM target
          ON CONFLICT (account_id, id) DO NOTHING RETURNING account_id, id, sort_order, created_at
        ), recorded AS (${recordInsert(sql, row.account_id, row.entry)})
        SELECT account_id, id, sort_order, created_at FROM inserted`
    })
    const insert = writes.batch<Creation, Option.Option<Assigned>>({
      operation: "credentials.insert",
      sizeOf: ({ row }) => sizeOf(row),
      one: (creation) =>
        Effect.map(
          assignedTo(
            writes.sql,
            [creation.row],
            writes.distributed ? insertRouted(writes.sql, creation, limit) : insertOne(insertValues(creation))
          ),
          ([assigned = Option.none()]) => assigned
        ),
      many: (creations) => {
        const { sql } = writes
        const rows = creations.map(({ row }) => row)
        const inserted = sql<Assigned>`
          WITH target AS (${targetsOf(sql, rows, limit)}), inserted AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order, created_at)
            SELECT ${sql.csv(newColumns)},
              next_order + row_number() OVER (PARTITION BY account_id, workspace_id, provider) - 1,
              date_trunc('milliseconds', now())
            FROM json_populate_recordset(NULL::credentials, ${toJson(rows)}::json)
            JOIN target ON target_account_id = account_id AND target_id = workspace_id AND target_provider = provider
            ON CONFLICT (account_id, id) DO NOTHING RETURNING account_id, id, sort_order, created_at
          ), recorded AS (${recordInserts(sql, creations.map(auditedOf))})
          SELECT account_id, id, sort_order, created_at FROM inserted`
        return assignedTo(sql, rows, inserted)
      }
    })
    const taken = new DatabaseFailure({ kind: "IdTaken", sqlstate: undefined, constraint: "credentials_pkey" })

    return {
      insert: (account_id, credential, sealed) =>
        CurrentActor.pipe(
          Effect.flatMap((actor) => insert({ row: { account_id, ...credential, ...sealed }, actor })),
          Effect.flatMap((assigned) =>
            Option.isSome(assigned)
              ? Effect.succeed(credentialOf({ ...credential, ...assigned.value }))
              : Effect.flatMap(
                  writes.ask(
                    whyRefused(writes.sql, { account_id, ...credential, ...sealed }, limit),
                    "workspaces.exists"
                  ),
                  Option.match({ onNone: () => Effect.die(taken), onSome: (refusal) => Effect.fail(refusal) })
                )
          )
        ),
      findById: (account_id, id) =>
        Effect.flatMap(Prefetched, (known) =>
          known?.account_id === account_id && known.credential?.id === id
            ? Effect.succeed(known.credential.found)
            : find({ account_id, id })
        ),
      findSealed: (account_id, id) => findSealed({ account_id, id }),
      list: listCredentials(reads),
      update: updateCredential(writes),
      delete: deleteCredential(writes),
      scan: scanCredentials(reads),
      reorder: reorderCredentials(writes)
    }
  })
)
