import { randomUUID } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import { Duration, Effect, Redacted } from "effect"
import { Client } from "pg"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { migrate } from "./migrate.ts"
import { schema4 } from "./schema4.ts"

export interface Upgrade {
  readonly migrations: ReadonlyArray<string>
  /** How long the migration took, in seconds. */
  readonly seconds: number
  /** What the load did, and its longest statement and wait for a lock, in milliseconds. */
  readonly statements: number
  readonly failed: ReadonlyArray<string>
  readonly longestStatement: number
  readonly longestWait: number
  /** Rows before the migration and after it that are the same, and creates of the load that are stored. */
  readonly rows: number
  readonly kept: number
  readonly created: number
  readonly stored: number
}

/** Several accounts, each with a workspace and a tenth of its credentials with a receipt. */
const seed = (accounts: number, each: number) => [
  `INSERT INTO accounts SELECT gen_random_uuid(), 'n', now() FROM generate_series(1, ${accounts})`,
  `INSERT INTO workspaces SELECT gen_random_uuid(), id, 'n', true, now() FROM accounts`,
  `INSERT INTO credentials SELECT gen_random_uuid(), account_id, id, 'openai', 'seeded', '***...***', now(),
    false, false, false, false, NULL, NULL, NULL, NULL, NULL, n, 'kek-1',
    decode(repeat('00', 60), 'hex'), decode(repeat('00', 110), 'hex') FROM generate_series(1, ${each}) AS n, workspaces`,
  `INSERT INTO receipts SELECT account_id, sha256(uuid_send(id)), id, sha256(''), now() FROM credentials
    WHERE sort_order % 10 = 0`,
  `INSERT INTO audit_entries (events) SELECT '[]' FROM generate_series(1, ${accounts})`,
  "VACUUM ANALYZE"
]

/** A create as 1.0.0 writes it. */
const create = `
  WITH home AS (
    SELECT id FROM workspaces WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL FOR SHARE
  ), receipt AS (
    INSERT INTO receipts SELECT $1, sha256(uuid_send($3::uuid)), $3::uuid, sha256(''), now() FROM home
    ON CONFLICT (account_id, key_hash) DO NOTHING RETURNING credential_id
  ), made AS (
    INSERT INTO credentials SELECT credential_id, $1, $2, 'openai', 'load', '***...***', now(), false, false, false, false,
      NULL, NULL, NULL, NULL, NULL, (
        SELECT coalesce(max(sort_order) + 1, 0) FROM credentials
        WHERE account_id = $1 AND workspace_id = $2 AND provider = 'openai'
      ), 'kek-1', decode(repeat('00', 60), 'hex'), decode(repeat('00', 110), 'hex') FROM receipt
    ON CONFLICT (id) DO NOTHING RETURNING id
  ), recorded AS (INSERT INTO audit_entries (events) SELECT '[]' FROM made)
  SELECT id FROM made`
const get = "SELECT name, label FROM credentials WHERE account_id = $1 AND id = $2"

/** Rows of the seed with a hash of their contents. */
const contents = `
  SELECT sum(n)::int AS rows, string_agg(hash::text, ' ' ORDER BY name) AS hash FROM (
    SELECT 'credentials' AS name, count(*) AS n, sum(hashtextextended((to_jsonb(c) - 'revision' - 'key_version')::text, 0)) AS hash
      FROM credentials c
      WHERE name = 'seeded'
    UNION ALL SELECT 'workspaces', count(*), sum(hashtextextended(w::text, 0)) FROM workspaces w
    UNION ALL SELECT 'receipts', count(*), sum(hashtextextended(r::text, 0)) FROM receipts r
      WHERE EXISTS (SELECT FROM credentials c WHERE c.id = r.credential_id AND c.account_id = r.account_id AND name = 'seeded')
    UNION ALL SELECT 'audit_entries', count(*), sum(hashtextextended(seq || events::text, 0)) FROM audit_entries
      WHERE seq <= $1
  ) AS counted`

const open = async (url: string, name: string) => {
  const client = new Client({ connectionString: url, application_name: name })
  await client.connect()
  return client
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error))

/** Seeds a database with the schema of 1.0.0 and migrates it, while creates and gets go on. */
export const upgradeUnderLoad = async (url: string, accounts: number, each: number): Promise<Upgrade> => {
  await Effect.runPromise(schema4(url))
  const [admin, ...workers] = await Promise.all(["admin", "load", "load"].map((name) => open(url, name)))
  if (admin === undefined) throw new Error("no connection")
  try {
    for (const statement of seed(accounts, each)) await admin.query(statement)
    const before = (await admin.query<{ rows: number; hash: string }>(contents, [accounts])).rows[0]
    const homes = (
      await admin.query<{ account_id: string; id: string }>("SELECT account_id, id FROM workspaces LIMIT 1000")
    ).rows
    const created: Array<string> = []
    const failed: Array<string> = []
    let [running, statements, longestStatement, longestWait] = [true, 0, 0, 0]

    const timed = async (work: () => Promise<unknown>) => {
      const began = performance.now()
      await work().catch((error: unknown) => failed.push(messageOf(error)))
      statements += 1
      longestStatement = Math.max(longestStatement, performance.now() - began)
    }
    const load = async (client: Client) => {
      for (let turn = 0; running; turn += 1) {
        const { account_id, id: workspace_id } = homes[turn % homes.length] ?? { account_id: "", id: "" }
        const id = randomUUID()
        await timed(async () => {
          const { rowCount } = await client.query({
            name: "create",
            text: create,
            values: [account_id, workspace_id, id]
          })
          if (rowCount !== 1) throw new Error("nothing was created")
          created.push(id)
        })
        await timed(async () => {
          const { rowCount } = await client.query({ name: "get", text: get, values: [account_id, id] })
          if (rowCount !== 1) throw new Error("the credential was not found")
        })
        await delay(5)
      }
    }
    const watch = async () => {
      while (running) {
        const { rows } = await admin.query<{ wait: number }>(`
          SELECT coalesce(max(extract(epoch FROM clock_timestamp() - waitstart)), 0)::float8 * 1000 AS wait
          FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE application_name = 'load' AND NOT granted`)
        longestWait = Math.max(longestWait, rows[0]?.wait ?? 0)
        await delay(5)
      }
    }
    const beside = Promise.all([...workers.map(load), watch()])
    const began = performance.now()
    const migrated = migrate(parseDatabaseUrl(Redacted.make(url)), {
      connectTimeout: Duration.seconds(5),
      pooler: false
    })
    const migrations = await Effect.runPromise(migrated).finally(() => (running = false))
    const seconds = (performance.now() - began) / 1000
    await beside
    const after = (await admin.query<{ rows: number; hash: string }>(contents, [accounts])).rows[0]
    const stored = await admin.query("SELECT FROM credentials WHERE id = ANY($1::uuid[])", [created])
    return {
      migrations,
      seconds,
      statements,
      failed,
      longestStatement,
      longestWait,
      rows: before?.rows ?? 0,
      kept: before?.hash === after?.hash ? (after?.rows ?? 0) : 0,
      created: created.length,
      stored: stored.rowCount ?? 0
    }
  } finally {
    await Promise.all([admin, ...workers].map((client) => client.end()))
  }
}
