import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

interface Column {
  readonly type: string
  readonly required: boolean
  readonly filled: boolean
}

/** What statements of a program rely on in a table. */
export interface Table {
  readonly columns: Readonly<Record<string, Column>>
  /** The columns of each unique index, sorted. */
  readonly unique: ReadonlyArray<ReadonlyArray<string>>
  /** What a row must satisfy, with the columns concerned, sorted. */
  readonly rules: ReadonlyArray<{ readonly rule: string; readonly columns: ReadonlyArray<string>; readonly to: string }>
}

export type Catalogue = Readonly<Record<string, Table>>

/** Reads the tables of a schema from PostgreSQL's catalogue. */
export const catalogueOf = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ tables: Catalogue | null }>`
      SELECT json_object_agg(relname, json_build_object(
        'columns', (
          SELECT json_object_agg(attname, json_build_object(
            'type', format_type(atttypid, atttypmod), 'required', attnotnull, 'filled', atthasdef OR attidentity <> ''))
          FROM pg_attribute WHERE attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
        ),
        'unique', (
          SELECT coalesce(json_agg((
            SELECT json_agg(attname ORDER BY attname) FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY(indkey)
          )), '[]') FROM pg_index WHERE indrelid = pg_class.oid AND indisunique AND indisvalid AND indpred IS NULL
        ),
        'rules', (
          SELECT coalesce(json_agg(json_build_object('rule', rule, 'to', target, 'columns', (
            SELECT coalesce(json_agg(attname ORDER BY attname), '[]') FROM pg_attribute
            WHERE attrelid = pg_class.oid AND attnum = ANY(keys)
          ))), '[]') FROM (
            SELECT CASE contype WHEN 'f' THEN 'reference' ELSE pg_get_constraintdef(oid) END AS rule, conkey AS keys,
              CASE confrelid WHEN 0 THEN '' ELSE confrelid::regclass::text END AS target
            FROM pg_constraint WHERE conrelid = pg_class.oid AND contype IN ('c', 'f', 'x')
            UNION ALL SELECT pg_get_triggerdef(oid), tgattr::int2[], '' FROM pg_trigger
            WHERE tgrelid = pg_class.oid AND NOT tgisinternal
          ) AS found
        )
      )) AS tables
      FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace`,
    ([row]) => row?.tables ?? {}
  )
