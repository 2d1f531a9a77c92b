import { Effect, Option } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { type Actor, CurrentActor } from "../../domain/CurrentCaller.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import { PoolFull, type UnstoredCredential, WorkspaceGone } from "../../port/CredentialRepository.ts"
import type { IdempotencyRecord } from "../../port/IdempotencyRecords.ts"
import { entryOf, recordInsert, recordInserts } from "../audit/auditing.ts"
import { compileOnce } from "../connection/compileOnce.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import type { Query } from "../connection/Query.ts"
import { credentialOf, newColumns, type NewRow, type Place, sizeOf, toJson } from "./credentialRows.ts"
import { cursorOf, inLockOrder } from "../connection/rowOrder.ts"

/** A new row, who creates it, and the idempotency record that is stored with it, if any. */
interface Creation {
  readonly row: NewRow
  readonly actor: Actor
  readonly record: IdempotencyRecord | undefined
}

/** What the database assigns to a new row, the time to the millisecond, as JavaScript will read it. */
interface Assigned {
  readonly account_id: AccountId
  readonly id: CredentialId
  readonly sort_order: number
  readonly created_at: Date
}

const assignedColumns = ["account_id", "id", "sort_order", "created_at"]

const actOf = ({ account_id, id, workspace_id }: NewRow) =>
  ({ action: "credential.create", account_id, workspace_id, credential_id: id }) as const

/** The values of a statement that inserts one row. */
const valuesOf = ({ actor, record, row }: Creation) => ({ ...row, ...record, entry: entryOf(actor, [actOf(row)]) })

/**
 * The workspace of a new row unless it is deleted or full, and the `next_order`, behind all others of the same workspace
 * and provider. The lock keeps the workspace as it is until the transaction ends, and covers the one that the foreign key
 * would take. Inserts that run at the same time do not see each other: they may exceed the limit by as many as an instance
 * has in progress. Their rows also share numbers, so the next number, which costs one probe of the index, shows that there
 * is room only up to half the limit; beyond it the rows are counted.
 */
const targetAt = (sql: SqlClient.SqlClient, { account_id, provider, workspace_id }: Place, limit: number) => {
  const pool = sql`
    FROM credentials WHERE account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider}`
  const most = sql.literal(String(limit))
  return sql`
    SELECT account_id AS target_account_id, id AS target_id, next_order
    FROM workspaces, LATERAL (SELECT coalesce(max(sort_order) + 1, 0) AS next_order ${pool}) AS last
    WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL AND (
      next_order < ${sql.literal(String(Math.ceil(limit / 2)))}
      OR (SELECT count(*) FROM (SELECT ${pool} LIMIT ${most}) AS members) < ${most}
    ) FOR SHARE OF workspaces`
}

/**
 * The targets of the rows of `wanted`, for a CTE `target`. The planner estimates the same cost of counting for any values,
 * so PostgreSQL keeps one plan; where a plan for given values looks cheaper, it plans each statement anew.
 */
const targets = (sql: SqlClient.SqlClient, wanted: Statement.Fragment, limit: number) => {
  const [account_id, workspace_id, provider] = [
    sql`wanted.account_id`,
    sql`wanted.workspace_id`,
    sql`wanted.provider`
  ] as const
  return sql`
    SELECT locked.*, wanted.provider AS target_provider FROM (${wanted} OFFSET 0) AS wanted,
      LATERAL (${targetAt(sql, { account_id, workspace_id, provider }, limit)}) AS locked`
}

const targetOf = (
  sql: SqlClient.SqlClient,
  { account_id, provider, workspace_id }: Readonly<Record<keyof Place, string>>,
  limit: number
) => {
  const wanted = sql`
    SELECT ${account_id}::uuid AS account_id, ${workspace_id}::uuid AS workspace_id, ${provider}::text AS provider`
  return targets(sql, wanted, limit)
}

/** As `targetOf`, for the workspaces and providers of several rows. */
export const targetsOf = (sql: SqlClient.SqlClient, rows: ReadonlyArray<NewRow>, limit: number) => {
  const nameOf = ({ account_id, provider, workspace_id }: NewRow) => `${account_id} ${workspace_id} ${provider}`
  const pools = inLockOrder(nameOf, Array.from(new Map(rows.map((row) => [nameOf(row), row])).values()))
  const places = pools.map(({ account_id, provider, workspace_id }) => ({ account_id, workspace_id, provider }))
  const wanted = sql`
    SELECT * FROM json_to_recordset(${JSON.stringify(places)}::json)
    AS place (account_id uuid, workspace_id uuid, provider text)`
  return targets(sql, wanted, limit)
}

/** Why a new row was not inserted; none if its id is taken. */
export const whyRefused = (
  sql: SqlClient.SqlClient,
  account_id: AccountId,
  { id, workspace_id }: UnstoredCredential,
  limit: number
) =>
  Effect.map(
    sql<{ taken: boolean }>`
      SELECT EXISTS (SELECT FROM credentials WHERE account_id = ${account_id} AND id = ${id}) AS taken
      FROM workspaces WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL`,
    ([workspace]): Option.Option<WorkspaceGone | PoolFull> => {
      if (workspace === undefined) return Option.some(new WorkspaceGone())
      return workspace.taken ? Option.none() : Option.some(new PoolFull({ limit }))
    }
  )

/**
 * What each row was assigned, in the order of the rows: as `insert` returns it or, if it returns none, as an earlier
 * attempt whose answer was lost stored it. The lock makes finding it a commit of its own, which waits for the
 * synchronous replica in case the earlier one did not.
 */
const assignedTo = (sql: SqlClient.SqlClient, rows: ReadonlyArray<NewRow>, insert: Query<ReadonlyArray<Assigned>>) =>
  Effect.flatMap(insert, (inserted) => {
    const byKey = new Map(inserted.map((assigned) => [cursorOf(assigned), assigned]))
    return Effect.forEach(rows, (row) => {
      const assigned = byKey.get(cursorOf(row))
      if (assigned !== undefined) return Effect.succeedSome(assigned)
      const stored = sql<Assigned>`
        SELECT account_id, id, sort_order, created_at FROM credentials
        WHERE account_id = ${row.account_id} AND id = ${row.id} AND wrapped_dek = ${row.wrapped_dek} FOR UPDATE`
      return Effect.map(stored, ([before]) => Option.fromUndefinedOr(before))
    })
  })

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex")

/** Records with the places of their credentials, as `json_to_recordset` reads them. */
const recordsJson = (creations: ReadonlyArray<Creation>) =>
  JSON.stringify(
    creations.map(({ record, row: { account_id, id, provider, workspace_id } }) => ({
      ...{ account_id, workspace_id, provider, id },
      key_hash: record && hex(record.key_hash),
      fingerprint: record && hex(record.fingerprint)
    }))
  )

/** The parts of the statements that insert credentials, with their idempotency records or without. */
const partsOf = (sql: SqlClient.SqlClient) => ({
  receipts: sql`INSERT INTO idempotency_records (account_id, key_hash, credential_id, fingerprint, created_at)`,
  once: sql`ON CONFLICT (account_id, key_hash) DO NOTHING`,
  credentials: sql`INSERT INTO credentials (${sql.csv(newColumns)}, sort_order, created_at)`,
  now: sql`date_trunc('milliseconds', now())`,
  /** An id that is taken fails a statement that also stores a record: both are stored or neither. */
  returning: (withRecord: boolean) => sql`
    ${withRecord ? sql`` : sql`ON CONFLICT (account_id, id) DO NOTHING`} RETURNING ${sql.csv(assignedColumns)}`
})

/**
 * Inserts a row where Citus spreads accounts over nodes. Every statement names the account as a value, so one node runs it;
 * in a single statement, Citus would send what a CTE returns to every node, and a node that is down would fail the creates
 * of all accounts.
 */
const insertRouted = (sql: SqlClient.SqlClient, creation: Creation, limit: number) =>
  Effect.gen(function* () {
    const { record, row } = creation
    const { credentials, now, once, receipts, returning } = partsOf(sql)
    const [target] = yield* sql<{ readonly next_order: number }>`${targetAt(sql, row, limit)}`
    if (target === undefined) return []
    if (record !== undefined) {
      const recorded = yield* sql`
        ${receipts} VALUES (${row.account_id}, ${record.key_hash}, ${row.id}, ${record.fingerprint}, now()) ${once}
        RETURNING 1`
      if (recorded.length === 0) return []
    }
    const { entry, ...values } = valuesOf(creation)
    const inserted = yield* sql<Assigned>`
      ${credentials} VALUES (${sql.csv(newColumns.map((column) => sql`${values[column]}`))}, ${target.next_order}, ${now})
      ${returning(record !== undefined)}`
    if (inserted.length > 0) {
      yield* sql`INSERT INTO audit_entries (account_id, events) VALUES (${row.account_id}, ${entry}::json)`
    }
    return inserted
  }).pipe(sql.withTransaction)

/**
 * Inserts credentials, alone or in batches, each with an event and, if so wanted, with an idempotency record; none if it
 * was not inserted. Waits for any transaction that is storing a record under the same hash.
 */
export const makeInsert = ({ batch, distributed, sql }: ConnectionPool, limit: number, withRecord: boolean) => {
  const { credentials, now, once, receipts, returning } = partsOf(sql)
  const and = (part: Statement.Fragment) => (withRecord ? part : sql``)
  const alone = compileOnce(
    sql,
    [...newColumns, "entry", "key_hash", "fingerprint"],
    (row) => sql<Assigned>`
    WITH target AS (${targetOf(sql, row, limit)}), ${and(sql`receipt AS (
      ${receipts} SELECT ${row.account_id}, ${row.key_hash}, ${row.id}, ${row.fingerprint}, now() FROM target ${once} RETURNING 1
    ),`)} inserted AS (
      ${credentials} SELECT ${sql.csv(newColumns.map((column) => sql`${row[column]}`))}, next_order, ${now}
      FROM target ${and(sql`, receipt`)} ${returning(withRecord)}
    ), recorded AS (${recordInsert(sql, row.account_id, row.entry)})
    SELECT ${sql.csv(assignedColumns)} FROM inserted`
  )
  const insert = batch<Creation, Option.Option<Assigned>>({
    operation: withRecord ? "credentials.insert_once" : "credentials.insert",
    sizeOf: ({ row }) => sizeOf(row),
    one: (creation) =>
      Effect.map(
        assignedTo(
          sql,
          [creation.row],
          distributed
            ? insertRouted(sql, creation, limit)
            : alone({ key_hash: null, fingerprint: null, ...valuesOf(creation) })
        ),
        ([assigned = Option.none()]) => assigned
      ),
    many: (creations) => {
      const rows = creations.map(({ row }) => row)
      const inserted = sql<Assigned>`
        WITH target AS (${targetsOf(sql, rows, limit)}), ${and(sql`receipt AS (
          ${receipts} SELECT account_id, decode(key_hash, 'hex'), id, decode(fingerprint, 'hex'), now()
          FROM json_to_recordset(${recordsJson(creations)}::json) AS wanted (
            account_id uuid, workspace_id uuid, provider text, id uuid, key_hash text, fingerprint text
          ) JOIN target ON target_account_id = account_id AND target_id = workspace_id AND target_provider = provider
          ORDER BY account_id, key_hash ${once} RETURNING account_id AS receipt_account_id, credential_id
        ),`)} inserted AS (
          ${credentials} SELECT ${sql.csv(newColumns)},
            next_order + row_number() OVER (PARTITION BY account_id, workspace_id, provider ORDER BY ordinality) - 1, ${now}
          FROM json_populate_recordset(NULL::credentials, ${toJson(rows)}::json) WITH ORDINALITY
          JOIN target ON target_account_id = account_id AND target_id = workspace_id AND target_provider = provider
          ${and(sql`JOIN receipt ON receipt_account_id = account_id AND credential_id = id`)} ${returning(withRecord)}
        ), recorded AS (${recordInserts(
          sql,
          creations.map(({ actor, row }) => ({ actor, act: actOf(row) }))
        )})
        SELECT ${sql.csv(assignedColumns)} FROM inserted`
      return assignedTo(sql, rows, inserted)
    }
  })
  return (account_id: AccountId, credential: UnstoredCredential, sealed: SealedKey, record?: IdempotencyRecord) =>
    Effect.flatMap(CurrentActor, (actor) =>
      Effect.map(
        insert({ row: { account_id, ...credential, ...sealed }, actor, record }),
        Option.map((assigned) => credentialOf({ ...credential, ...assigned }))
      )
    )
}
