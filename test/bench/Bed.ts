import { mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Duration, Effect, Exit, Logger, Redacted, Scope } from "effect"
import { Client } from "pg"
import { AccountId, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { Provider } from "../../src/domain/Provider.ts"
import { formatApiKey, hashApiKey } from "../../src/runtime/ApiKey.ts"
import type { DatabaseSettings } from "../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import type { NewRow } from "../../src/sql/rows/credentialRows.ts"
import { start } from "../../src/sql/embedded/EmbeddedPostgres.ts"
import { migrate } from "../support/database/migrate.ts"
import { databaseSettings } from "../support/database/freshDatabase.ts"
import { columns } from "./peers/statements.ts"

/** A PostgreSQL server for the bench. */
export interface Postgres {
  readonly socket: string
  readonly password: string
  readonly postmaster: number
  readonly stop: () => Promise<void>
}

/** A database with an account, a management key and credentials whose ids can be counted. */
export interface Bed extends Postgres {
  readonly url: string
  readonly database: string
  readonly key: string
  readonly seeded: number
  /** Whether it has the lean peer's table. */
  readonly lean: boolean
  /** Ids of credentials whose keys open; the keys of seeded ones do not. */
  readonly updatable: Array<string>
  /** The providers of created credentials. */
  readonly providers: ReadonlyArray<string>
  readonly client: Client
}

const user = "byok"
export const account_id = AccountId.make("00000000-0000-7000-8000-00000000000a")
export const workspace_id = WorkspaceId.make("00000000-0000-7000-8000-00000000000b")
const key = formatApiKey(Buffer.alloc(32), "management")

const seededProvider = "anthropic"

/** The id of the n-th seeded credential. */
export const seededId = (n: number): string => `00000000-0000-7000-9000-${String(n).padStart(12, "0")}`

const startPostgres = async (): Promise<Postgres> => {
  const directory = mkdtempSync(join(tmpdir(), "byok-bench-"))
  const scope = Scope.makeUnsafe()
  const { host, password } = await Effect.runPromise(Scope.provide(start(directory), scope))
  return {
    socket: host,
    password: Redacted.value(password),
    postmaster: Number(readFileSync(join(directory, "postgres", "postmaster.pid"), "utf8").split("\n")[0]),
    stop: async () => {
      await Effect.runPromise(Scope.close(scope, Exit.void))
      rmSync(directory, { recursive: true, force: true })
    }
  }
}

/** Settings of a program that uses the database without the service: it waits rather than fails. */
export const patientSettings: DatabaseSettings = {
  ...databaseSettings,
  poolSize: 10,
  statementTimeout: Duration.minutes(1),
  deadline: Duration.seconds(65)
}

/** Adds an account with a workspace, by default of the same id. */
export const addAccount = async (client: Client, account: string, workspace = account): Promise<void> => {
  await client.query("INSERT INTO accounts VALUES ($1, 'bench', now())", [account])
  await client.query("INSERT INTO workspaces VALUES ($2, $1, 'bench', true, now())", [account, workspace])
}

/** Issues management keys, which may be revoked at once. */
export const issue = (client: Client, account: string, tokens: ReadonlyArray<string>, revoked_at: Date | null = null) =>
  client.query(
    `INSERT INTO api_keys SELECT decode(hash, 'hex'), $1, 'bench', 'management', now(), $3::timestamptz FROM unnest($2::text[]) AS hash`,
    [account, tokens.map((token) => hashApiKey(Redacted.make(token))), revoked_at]
  )

const hexadecimal = (bytes: Uint8Array) => `\\x${Buffer.from(bytes).toString("hex")}`

/** Stores rows as they are, in order from a place on. */
export const insertRows = (client: Client, rows: ReadonlyArray<NewRow>, from = 0) =>
  client.query(
    `WITH rows AS MATERIALIZED (SELECT * FROM json_populate_recordset(NULL::credentials, $1::json)), opened AS (
       INSERT INTO pools AS pool (account_id, workspace_id, provider, version, members, next_order)
       SELECT account_id, workspace_id, provider, 1, count(*), max(sort_order) + 1 FROM rows GROUP BY 1, 2, 3
       ON CONFLICT (account_id, workspace_id, provider) DO UPDATE SET version = pool.version + 1,
         members = pool.members + excluded.members, next_order = greatest(pool.next_order, excluded.next_order)
     )
     INSERT INTO credentials SELECT * FROM rows`,
    [
      JSON.stringify(
        rows.map((row, n) => ({
          ...row,
          wrapped_dek: hexadecimal(row.wrapped_dek),
          sealed: hexadecimal(row.sealed),
          created_at: new Date(),
          sort_order: from + n,
          revision: 1,
          key_version: 1
        }))
      )
    ]
  )

/** The columns of the lean peer's table. */
export const leanColumns = [...columns, "sort_order", "account_id", "sealed"].join(", ")

/** Stores pools of so many credentials each, of the workspaces that are numbered so; both columns are SQL that may read `pool`. */
const seedPools = async (
  client: Client,
  {
    account,
    each,
    first,
    last,
    workspace
  }: Record<"account" | "workspace", string> & Record<"each" | "first" | "last", number>
) => {
  const given = [first, last, each]
  await client.query(
    `INSERT INTO pools (account_id, workspace_id, provider, members, next_order)
     SELECT ${account}, ${workspace}, '${seededProvider}', $3::int, $3::int + 1 FROM generate_series($1::int, $2::int) AS pool`,
    given
  )
  await client.query(
    `INSERT INTO credentials
     SELECT ('00000000-0000-7000-9000-' || lpad((pool * $3::int + n)::text, 12, '0'))::uuid, ${account}, ${workspace},
       '${seededProvider}', 'seeded', 'sk-...AbCd', now(), false, false, false, false, NULL, ARRAY['a/model', 'another/model'],
       NULL, NULL, NULL, n, 'kek-bench', decode(repeat('00', 60), 'hex'), decode(repeat('00', 110), 'hex')
     FROM generate_series($1::int, $2::int) AS pool, generate_series(1, $3::int) AS n`,
    given
  )
}

const seed = async (client: Client, credentials: number, lean: boolean) => {
  await addAccount(client, account_id, workspace_id)
  await issue(client, account_id, [key])
  await client.query("INSERT INTO keks VALUES ('kek-bench', decode(repeat('00', 16), 'hex'))")
  const own = { account: `'${account_id}'::uuid`, workspace: `'${workspace_id}'::uuid` }
  await seedPools(client, { ...own, each: credentials, first: 0, last: 0 })
  if (lean) {
    await client.query(
      `CREATE TABLE lean_credentials AS SELECT ${leanColumns} FROM credentials;
       ALTER TABLE lean_credentials ADD PRIMARY KEY (id)`
    )
  }
  await settle(client)
}

const settle = async (client: Client) => {
  await client.query("VACUUM ANALYZE")
  await client.query("CHECKPOINT")
}

/** Adds other accounts that have as many credentials each, until there are so many in all. */
export const addOthers = async ({ client, seeded }: Bed, size: number): Promise<void> => {
  const account = "('00000000-0000-7000-a000-' || lpad(pool::text, 12, '0'))::uuid"
  const [first, last] = [1, size / seeded - 1]
  const added = (row: string) => `SELECT ${row} FROM generate_series(${first}, ${last}) AS pool`
  await client.query(`INSERT INTO accounts ${added(`${account}, 'bench', now()`)}`)
  await client.query(`INSERT INTO workspaces ${added(`${account}, ${account}, 'bench', true, now()`)}`)
  await seedPools(client, { account, workspace: account, each: seeded, first, last })
  await settle(client)
}

/** The providers of created credentials: many, because a pool has room for 1,000. The seeded ones are of another. */
const emptyPools = Provider.literals.filter((provider) => provider !== seededProvider).slice(0, 20)

export const makeBed = async (postgres: Postgres, database: string, credentials: number, lean = true): Promise<Bed> => {
  const admin = new Client({ host: postgres.socket, user, password: postgres.password, database: "postgres" })
  await admin.connect()
  await admin.query(`CREATE DATABASE ${database}`)
  await admin.end()
  const url = `postgres://${user}:${postgres.password}@localhost/${database}?host=${encodeURIComponent(postgres.socket)}`
  const target = parseDatabaseUrl(Redacted.make(url))
  await Effect.runPromise(migrate(target, { connectTimeout: Duration.seconds(5), pooler: false }))
  const client = new Client({ host: postgres.socket, user, password: postgres.password, database })
  await client.connect()
  await seed(client, credentials, lean)
  return { ...postgres, url, database, key, seeded: credentials, lean, updatable: [], providers: emptyPools, client }
}

/** Spreads the seeded credentials of a database over the pools for created ones. */
export const spread = async (bed: Bed): Promise<Bed> => {
  const { providers } = bed
  const each = bed.seeded / providers.length
  await bed.client.query(
    `INSERT INTO pools (account_id, workspace_id, provider, members, next_order)
     SELECT $1, $2, provider, $3, $4 FROM unnest($5::text[]) AS provider
     ON CONFLICT (account_id, workspace_id, provider) DO UPDATE SET members = excluded.members`,
    [account_id, workspace_id, each, bed.seeded + 1, providers]
  )
  await bed.client.query("UPDATE credentials SET provider = ($1::text[])[1 + sort_order % cardinality($1)]", [
    providers
  ])
  await bed.client.query("DELETE FROM pools WHERE provider <> ALL ($1)", [providers])
  await bed.client.query("VACUUM FULL ANALYZE")
  return bed
}

/** A measurement. Its own programs have ended when it ends. */
type Measure<A> = (given: A) => Promise<void> | Effect.Effect<void, unknown, Scope.Scope>

const run = <A>(measure: Measure<A>, given: A) => {
  const measured = measure(given)
  return Effect.isEffect(measured) ? measured : Effect.promise(() => measured)
}

const postgres = Effect.acquireRelease(Effect.promise(startPostgres), ({ stop }) => Effect.promise(stop))

/** Runs a measurement on a new PostgreSQL, as the main program of this process. */
export const onPostgres = (measure: Measure<Postgres>): void => {
  const measured = Effect.flatMap(postgres, (given) => run(measure, given))
  const program = measured.pipe(
    // With no logger, nothing else prints it.
    Effect.tapCause((cause) => Effect.sync(() => console.error(Cause.pretty(cause)))),
    Effect.scoped,
    Effect.provide(Logger.layer([]))
  )
  NodeRuntime.runMain(Effect.map(program, (): void => process.exit()))
}

/** Runs a measurement on a database in a new PostgreSQL, as the main program of this process. */
export const onBed = (database: string, credentials: number, measure: Measure<Bed>): void => {
  onPostgres((given) => {
    const bed = Effect.acquireRelease(
      Effect.promise(() => makeBed(given, database, credentials)),
      ({ client }) => Effect.promise(() => client.end())
    )
    return Effect.flatMap(bed, (given) => run(measure, given))
  })
}

/** Deletes what the load has created: every round starts from the same table. */
export const sweep = async ({ client, lean }: Bed): Promise<void> => {
  await client.query("DELETE FROM credentials WHERE kek_id <> 'kek-bench'")
  // Otherwise pools would be full after some hundred thousand creates.
  await client.query(
    `UPDATE pools SET bytes = 0, members = (
      SELECT count(*) FROM credentials AS member WHERE member.account_id = pools.account_id
      AND member.workspace_id = pools.workspace_id AND member.provider = pools.provider
    )`
  )
  await client.query("VACUUM credentials")
  if (!lean) return
  await client.query(
    `DELETE FROM lean_credentials AS lean WHERE NOT EXISTS (
      SELECT FROM credentials WHERE credentials.account_id = lean.account_id AND credentials.id = lean.id
    )`
  )
  await client.query("VACUUM lean_credentials")
}
