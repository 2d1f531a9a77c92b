import { createHash } from "node:crypto"
import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Duration, Effect, Exit, Redacted, Scope } from "effect"
import { Client } from "pg"
import { formatApiKey } from "../../src/port/ApiKey.ts"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { start } from "../../src/sql/embedded/EmbeddedPostgres.ts"
import { migrate } from "../../src/sql/Migrations.ts"
import { columns } from "./peers/statements.ts"

/** A PostgreSQL of the bench's own. */
export interface Postgres {
  readonly socket: string
  readonly postmaster: number
  readonly stop: () => Promise<void>
}

/** A database with an account, a management key and credentials whose ids can be counted. */
export interface Bed extends Postgres {
  readonly url: string
  readonly database: string
  readonly key: string
  readonly seeded: number
  /** The ids of credentials that can be opened, unlike the seeded ones. */
  readonly updatable: Array<string>
  readonly client: Client
}

const user = "byok"
const account = "00000000-0000-7000-8000-00000000000a"
const workspace = "00000000-0000-7000-8000-00000000000b"
const key = formatApiKey(Buffer.alloc(32), true)

/** The id of the n-th seeded credential. */
export const seededId = (n: number): string => `00000000-0000-7000-9000-${String(n).padStart(12, "0")}`

export const startPostgres = async (): Promise<Postgres> => {
  const directory = mkdtempSync(join(tmpdir(), "byok-bench-"))
  const scope = Scope.makeUnsafe()
  const { host } = await Effect.runPromise(Scope.provide(start(directory), scope))
  return {
    socket: host,
    postmaster: Number(readFileSync(join(directory, "postgres", "postmaster.pid"), "utf8").split("\n")[0]),
    stop: async () => {
      await Effect.runPromise(Scope.close(scope, Exit.void))
      rmSync(directory, { recursive: true, force: true })
    }
  }
}

/** What the lean peer stores, in a table of its own. */
const leanColumns = [...columns, "sort_order", "account_id", "sealed"].join(", ")

const seed = async (client: Client, credentials: number) => {
  const hash = createHash("sha256").update(key).digest()
  await client.query("INSERT INTO accounts VALUES ($1, 'bench', now())", [account])
  await client.query("INSERT INTO workspaces VALUES ($2, $1, 'bench', true, now())", [account, workspace])
  await client.query("INSERT INTO api_keys VALUES ($2, $1, 'bench', true, now())", [account, hash])
  await client.query("INSERT INTO keks VALUES ('kek-bench', decode(repeat('00', 16), 'hex'))")
  await client.query(
    `INSERT INTO credentials
     SELECT ('00000000-0000-7000-9000-' || lpad(n::text, 12, '0'))::uuid, $1, $2, 'anthropic', 'seeded', 'sk-...AbCd',
       now(), false, false, false, false, NULL, ARRAY['a/model', 'another/model'], NULL, NULL, NULL, n::int, 'kek-bench',
       decode(repeat('00', 60), 'hex'), decode(repeat('00', 110), 'hex')
     FROM generate_series(1, $3::int) AS n`,
    [account, workspace, credentials]
  )
  await client.query(
    `CREATE TABLE lean_credentials AS SELECT ${leanColumns} FROM credentials;
     ALTER TABLE lean_credentials ADD PRIMARY KEY (id)`
  )
  await client.query("VACUUM ANALYZE")
  await client.query("CHECKPOINT")
}

export const makeBed = async (postgres: Postgres, database: string, credentials: number): Promise<Bed> => {
  const admin = new Client({ host: postgres.socket, user, database: "postgres" })
  await admin.connect()
  await admin.query(`CREATE DATABASE ${database}`)
  await admin.end()
  const url = `postgres://${user}@localhost/${database}?host=${encodeURIComponent(postgres.socket)}`
  const target = parseDatabaseUrl(Redacted.make(url))
  await Effect.runPromise(migrate(target, { connectTimeout: Duration.seconds(5), pooler: false }))
  const client = new Client({ host: postgres.socket, user, database })
  await client.connect()
  await seed(client, credentials)
  return { ...postgres, url, database, key, seeded: credentials, updatable: [], client }
}

/** Deletes what the load has created: every round starts from the same table. */
export const sweep = async ({ client }: Bed): Promise<void> => {
  await client.query("DELETE FROM credentials WHERE kek_id <> 'kek-bench'")
  await client.query("DELETE FROM lean_credentials WHERE id NOT IN (SELECT id FROM credentials)")
  await client.query("VACUUM credentials, lean_credentials")
}
