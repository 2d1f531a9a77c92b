import { execFileSync } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { runByok } from "../support/process/runByok.ts"
import { Skipped } from "../support/process/installedPrograms.ts"
import { type Cluster, newCluster } from "./Cluster.ts"
import { installedPostgres } from "./installedPostgres.ts"

/** A coordinator and two workers of Citus, which reach each other by their sockets. */
export interface CitusCluster {
  readonly coordinator: Cluster
  readonly workers: ReadonlyArray<Cluster>
  /** Starts a node again as it was started first. */
  readonly restart: (node: Cluster) => Effect.Effect<void>
  /** Where the rows of an account are. */
  readonly workerOf: (account_id: string) => Effect.Effect<Cluster>
  /** Commits or rolls back what a worker that was killed had prepared, as Citus does by itself every minute. */
  readonly recover: Effect.Effect<unknown>
}

/** The directory of an installed PostgreSQL that has the extension Citus. */
export const postgresWithCitus = Effect.gen(function* () {
  const programs = yield* installedPostgres(["initdb", "postgres", "pg_config"])
  const shared = execFileSync(join(programs, "pg_config"), ["--sharedir"], { encoding: "utf8" }).trim()
  return existsSync(join(shared, "extension/citus.control"))
    ? programs
    : yield* new Skipped({ why: "PostgreSQL is installed without Citus; docs/contributing.md says how to build it" })
})

/** What docs/scaling.md says to set on every node. */
const required = { shared_preload_libraries: "citus", max_prepared_transactions: "200", wal_level: "logical" }

/** Starts the nodes, with further settings of the coordinator, and introduces them to each other. */
export const newCitusCluster = Effect.fnUntraced(function* (settings: Record<string, string> = {}) {
  const programs = yield* postgresWithCitus
  const binaries = { initdb: join(programs, "initdb"), postgres: join(programs, "postgres") }
  const local = { "citus.node_conninfo": "sslmode=disable", "citus.shard_count": "4", timezone: "UTC" }
  const coordinator = yield* newCluster({ binaries })
  const workers = yield* Effect.replicateEffect(newCluster({ binaries }), 2)
  const restart = (node: Cluster) => node.start({ ...required, ...local, ...(node === coordinator ? settings : {}) })
  for (const node of [coordinator, ...workers]) {
    yield* restart(node)
    yield* node.query("CREATE EXTENSION citus")
  }
  yield* coordinator.query(`SELECT citus_set_coordinator_host('${coordinator.socket}', 5432)`)
  for (const { socket } of workers) yield* coordinator.query(`SELECT citus_add_node('${socket}', 5432)`)
  return {
    coordinator,
    workers,
    restart,
    workerOf: (account_id) =>
      Effect.map(
        coordinator.query(`
          SELECT nodename FROM citus_shards
          WHERE shardid = get_shard_id_for_distribution_column('credentials', '${account_id}')`),
        ([row]) => workers.find(({ socket }) => socket === row?.["nodename"]) ?? coordinator
      ),
    recover: coordinator.query("SELECT recover_prepared_transactions()")
  } satisfies CitusCluster
})

/** Distributes its tables. */
export const distribute = ({ coordinator }: CitusCluster) =>
  Effect.flatMap(runByok(["migrate", "--distribute"], { DATABASE_URL: coordinator.url }), ({ code, stderr }) =>
    code === 0 ? Effect.void : Effect.die(new Error(stderr))
  )

/** What the coordinator has logged since it was started. */
export const logOf = ({ data }: Cluster) => readFileSync(join(data, "log/server.json"), "utf8")
