import { randomUUID } from "node:crypto"
import { Effect, Layer, Option } from "effect"
import type { SqlClient } from "effect/sql"
import type { AccountId, CredentialId, CredentialReference } from "../../domain/Identifiers.ts"
import { inconclusiveLabel } from "../../domain/KeyMaterial.ts"
import { multiSecretProviders } from "../../domain/Provider.ts"
import type { SealedKey, BoundCredential } from "../../domain/SealedKey.ts"
import { type KeyReference, LeakedKeys, type Suspect } from "../../port/LeakedKeys.ts"
import { recordEach, recordOnce } from "../audit/auditing.ts"
import { Database } from "../connection/Database.ts"
import { makeLookUp, tableOf } from "../connection/statements.ts"
import {
  listBytes,
  contextColumns,
  cursorOf,
  keyOfCursor,
  lowestKey,
  pageBytes,
  type Recorded,
  recordedColumns,
  recordedOf
} from "../rows/credentialRows.ts"
import { changeHealth, isLeakMark, isMarkedAsLeaked, setOf } from "../rows/parkingRows.ts"

/** The greatest number of credentials that a page of a scan reads. */
const pageSize = 1000

/** The columns of a suspect. */
const columns = [...contextColumns, "label", "key_version", "kek_id", "wrapped_dek", "sealed"]

/** A suspect as the driver reads it. */
type SuspectRow = BoundCredential & SealedKey & Pick<Suspect, "label" | "key_version">

/**
 * The condition that a row has one of the labels, or that its label is inconclusive or covers only one of its secrets.
 */
const isSuspected = (sql: SqlClient.SqlClient, labels: ReadonlyArray<string>) =>
  sql`(label = ANY(${labels}::text[]) OR label ~ ${inconclusiveLabel.source} OR provider = ANY(${multiSecretProviders}::text[]))`

/** A suspect and its page. A page without suspects is one row without a credential; an empty page has no row. */
type Row = {
  readonly searched: number
  readonly is_last: boolean
  readonly last_account_id: AccountId
  readonly last_id: CredentialId
} & (SuspectRow | { readonly id: null })

const hasSuspect = (row: Row): row is Row & SuspectRow => row.id !== null

const suspectOf = (row: SuspectRow): Suspect => {
  const { kek_id, key_version, label, sealed, wrapped_dek } = row
  return { context: row, sealed: { kek_id, wrapped_dek, sealed }, label, key_version }
}

/** References to keys as rows `key`, numbered by `n` from 1. */
const rowsOf = (sql: SqlClient.SqlClient, keys: ReadonlyArray<KeyReference>) => {
  const types = { account_id: "uuid", credential_id: "uuid", key_version: "bigint" } as const
  return tableOf(sql, "key", types, (column) => keys.map((key) => key[column]))
}

type RecordedKey = Recorded & Pick<KeyReference, "key_version">

const keyActOf = (row: RecordedKey) => ({ ...recordedOf(row), key_version: row.key_version })

/** Reads the columns for audit events about keys. Their pools are locked, so that the columns cannot change. */
const recordedKeys = (sql: SqlClient.SqlClient, keys: ReadonlyArray<KeyReference>) => sql<RecordedKey>`
  SELECT ${sql.csv(recordedColumns.map((column) => sql`credentials.${sql(column)}`))}, credentials.key_version
  FROM ${rowsOf(sql, keys)}
  JOIN credentials ON credentials.account_id = key.account_id AND credentials.id = key.credential_id
  ORDER BY key.n`

/** Marks keys as leaked, if their credentials still have them. Returns the credentials of the newly marked ones. */
const mark = (sql: SqlClient.SqlClient, keys: ReadonlyArray<KeyReference>) => sql<CredentialReference>`
  INSERT INTO credential_parkings AS parked
    (account_id, credential_id, model, key_version, cause, strikes, until, parked_at)
  SELECT credentials.account_id, credentials.id, '', key.key_version, 'leaked', 0, NULL, now()
  FROM ${rowsOf(sql, keys)}
  JOIN credentials ON credentials.account_id = key.account_id AND credentials.id = key.credential_id
  AND credentials.key_version = key.key_version
  ORDER BY credentials.account_id, credentials.id
  ON CONFLICT (account_id, credential_id, model) DO UPDATE
  SET key_version = excluded.key_version, cause = excluded.cause, strikes = 0, until = NULL, parked_at = excluded.parked_at
  WHERE parked.cause <> 'leaked' OR parked.key_version < excluded.key_version
  RETURNING parked.account_id, parked.credential_id`

export const layer = Layer.effect(
  LeakedKeys,
  Effect.map(Database, ({ reads, writes }) => {
    const findMark = makeLookUp(reads, {
      operation: "leaked_keys.exist",
      by: { account_id: "uuid" },
      select: ({ account_id }) => reads.sql<{ readonly has_marks: boolean }>`
        SELECT true AS has_marks FROM credential_parkings WHERE account_id = ${account_id} AND cause = 'leaked' LIMIT 1`,
      read: ({ has_marks }) => has_marks
    })
    return {
      countCredentials: Effect.map(
        reads.ask(reads.sql<{ count: number }>`SELECT count(*)::int AS count FROM credentials`, "credentials.count"),
        ([row]) => row?.count ?? 0
      ),
      /** Limits the page before comparing labels, so that a page costs the same however rare suspects are. */
      scan: ({ after, labels }) => {
        const { ask, sql } = reads
        const { account_id, id } = after === undefined ? lowestKey : keyOfCursor(after)
        const rows = sql<Row>`
        WITH read AS MATERIALIZED (
          SELECT *, sum(${listBytes(sql)} + octet_length(sealed)) OVER (ORDER BY account_id, id) AS bytes,
            row_number() OVER (ORDER BY account_id, id) AS n
          FROM (
            SELECT ${sql.csv(columns)} FROM credentials
            WHERE (account_id, id) > (${account_id}::uuid, ${id}::uuid) ORDER BY account_id, id LIMIT ${pageSize}
          ) AS next
        ), page AS MATERIALIZED (SELECT * FROM read WHERE bytes <= ${pageBytes} OR n = 1)
        SELECT covered.*, suspects.* FROM (
          SELECT account_id AS last_account_id, id AS last_id, n::int AS searched,
            n < ${pageSize} AND n = (SELECT count(*) FROM read) AS is_last
          FROM page ORDER BY n DESC LIMIT 1
        ) AS covered LEFT JOIN (SELECT ${sql.csv(columns)} FROM page WHERE ${labels === undefined ? sql`true` : isSuspected(sql, labels)}) AS suspects ON true`
        return Effect.map(ask(rows, "leaked_keys.scan"), (page) => {
          const [first] = page
          return {
            suspects: page.filter(hasSuspect).map(suspectOf),
            searched: first?.searched ?? 0,
            next:
              first === undefined || first.is_last
                ? undefined
                : cursorOf({ account_id: first.last_account_id, id: first.last_id })
          }
        })
      },
      conclude: ({ keys, park, searched }) => {
        const { ask, sql } = writes
        // Lets a retry record the search only once.
        const operation = randomUUID()
        const conclusion = Effect.gen(function* () {
          yield* recordOnce(sql, operation, { action: "leak.search", searched, found: keys.length })
          const changed = park && keys.length > 0 ? yield* mark(sql, keys) : []
          const newlyMarked = keys.filter(setOf(changed).has)
          const rows = newlyMarked.length > 0 ? yield* recordedKeys(sql, newlyMarked) : []
          yield* recordEach(sql, rows, (row) => ({ action: "credential.park", ...keyActOf(row) }))
          const marks = yield* sql<{ n: number }>`
            SELECT n::int AS n FROM ${rowsOf(sql, keys)} JOIN credential_parkings AS parked
            ON parked.account_id = key.account_id AND parked.credential_id = key.credential_id
            AND parked.key_version = key.key_version AND ${isLeakMark(sql)}`
          const marked = new Set(marks.map(({ n }) => n))
          return { changed, answer: keys.map((_, index) => marked.has(index + 1)) }
        })
        return ask(
          changeHealth(writes, park ? keys : [], () => conclusion),
          "leaked_keys.conclude"
        )
      },
      marked: (account_id, labels) => {
        const { ask, sql } = reads
        const rows = () => sql<SuspectRow>`
          SELECT ${sql.csv(columns)} FROM credentials
          WHERE account_id = ${account_id} AND id = ANY(ARRAY(
            SELECT credential_id FROM credential_parkings WHERE account_id = ${account_id} AND cause = 'leaked'
          )) AND ${isSuspected(sql, labels())} AND ${isMarkedAsLeaked(sql, sql`${account_id}`, sql`credentials.id`, sql`key_version`)}`
        return Effect.flatMap(findMark({ account_id }), (mark) =>
          Option.isSome(mark)
            ? Effect.map(ask(rows(), "leaked_keys.marked", account_id), (suspects) => suspects.map(suspectOf))
            : Effect.succeed([])
        )
      },
      clear: (account_id, id) => {
        const { ask, sql } = writes
        const credential = { account_id, credential_id: id }
        const cleared = Effect.gen(function* () {
          const [row] = yield* sql<RecordedKey>`
          SELECT ${sql.csv(recordedColumns)}, key_version FROM credentials
          WHERE account_id = ${account_id} AND id = ${id} FOR SHARE`
          if (row === undefined) return { changed: [], answer: Option.none<KeyReference>() }
          const { label: _label, provider: _provider, ...key } = keyActOf(row)
          // Keeps the row: one whose cause is `succeeded` parks nothing.
          const ended = yield* sql`
          UPDATE credential_parkings AS parked SET cause = 'succeeded', parked_at = now()
          WHERE account_id = ${account_id} AND credential_id = ${id} AND key_version = ${key.key_version}
          AND ${isLeakMark(sql)} RETURNING 1`
          yield* recordEach(sql, ended, () => ({ action: "credential.unpark", ...keyActOf(row) }))
          return { changed: ended.length > 0 ? [credential] : [], answer: Option.some(key) }
        })
        return ask(
          changeHealth(writes, [credential], () => cleared),
          "leaked_keys.clear",
          account_id
        )
      }
    }
  })
)
