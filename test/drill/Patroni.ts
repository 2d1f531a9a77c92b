import { chownSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { Client } from "pg"
import { postgresUser, run } from "../../src/sql/embedded/LeashedProcess.ts"
import { eventually } from "../support/process/eventually.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { freePort } from "./Bed.ts"
import { ownDirectory, sendTo } from "./Cluster.ts"
import { installedPostgres } from "./installedPostgres.ts"
import { Skipped } from "./Row.ts"

/** PostgreSQL on three nodes under Patroni and etcd, each with a PgBouncer, behind one HAProxy. */
export interface Patroni {
  /** HAProxy, which leads to the leader's PgBouncer. */
  readonly url: string
  /** Patroni hands the lead to a standby, and returns once there is another leader. */
  readonly switchover: Effect.Effect<void>
  /** Kills the leader's postmaster, and returns once there is another leader. */
  readonly killPostmaster: Effect.Effect<void>
}

const names = ["one", "two", "three"] as const

/** Debian packages unpacked into a folder with `dpkg -x`. */
const unpacked = process.env["DRILL_PACKAGES"]

const programs = Effect.suspend(() => {
  const roots = unpacked === undefined ? [] : ["usr/bin", "usr/sbin"].map((directory) => join(unpacked, directory))
  const directories = [...roots, ...(process.env["PATH"] ?? "").split(":"), "/usr/sbin"]
  const find = (program: string) =>
    directories.map((directory) => join(directory, program)).find((path) => existsSync(path))
  const [patroni, etcd, haproxy, pgbouncer] = ["patroni", "etcd", "haproxy", "pgbouncer"].map(find)
  return patroni === undefined || etcd === undefined || haproxy === undefined || pgbouncer === undefined
    ? Effect.fail(new Skipped({ why: "patroni, etcd, haproxy and pgbouncer are not installed; see DRILL_PACKAGES" }))
    : Effect.succeed({ patroni, etcd, haproxy, pgbouncer })
})

/** Where unpacked programs find what they need. */
const variables = (): Record<string, string> => {
  if (unpacked === undefined) return {}
  const libraries = join(unpacked, "usr/lib")
  const folders = existsSync(libraries) ? readdirSync(libraries).filter((name) => name.endsWith("-linux-gnu")) : []
  return {
    LD_LIBRARY_PATH: folders.map((name) => join(libraries, name)).join(":"),
    PYTHONPATH: join(libraries, "python3/dist-packages")
  }
}

/** Patroni and PgBouncer read their files as PostgreSQL's user. */
const writeOwn = (path: string, text: string) => {
  writeFileSync(path, text)
  if (postgresUser !== undefined) chownSync(path, postgresUser.uid, postgresUser.gid)
  return path
}

interface Node {
  readonly name: string
  readonly data: string
  readonly postgres: number
  readonly rest: number
  readonly pooler: number
}

/** A member as Patroni's REST API shows it. */
interface Member {
  readonly name: string
  readonly role: string
  readonly state: string
}

const dynamic = {
  ttl: 20,
  loop_wait: 3,
  retry_timeout: 5,
  master_start_timeout: 0,
  synchronous_mode: true,
  postgresql: { use_pg_rewind: true, parameters: { max_connections: 100, timezone: "UTC" } }
}

/** YAML, of which JSON is a part. */
const patroniFile = ({ data, name, postgres, rest }: Node, directory: string, etcd: number, programs: string) =>
  JSON.stringify({
    scope: "drill",
    name,
    restapi: { listen: `127.0.0.1:${rest}`, connect_address: `127.0.0.1:${rest}` },
    etcd3: { host: `127.0.0.1:${etcd}` },
    bootstrap: {
      dcs: dynamic,
      initdb: [{ encoding: "UTF8" }, { locale: "C" }],
      pg_hba: ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
    },
    postgresql: {
      listen: `127.0.0.1:${postgres}`,
      connect_address: `127.0.0.1:${postgres}`,
      data_dir: data,
      bin_dir: programs,
      pgpass: join(directory, `${name}.pgpass`),
      authentication: {
        superuser: { username: "postgres", password: "trusted" },
        replication: { username: "replicator", password: "trusted" }
      },
      parameters: { unix_socket_directories: directory }
    }
  })

const poolerFile = ({ pooler, postgres }: Node, users: string) => `[databases]
* = host=127.0.0.1 port=${postgres}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${pooler}
unix_socket_dir =
auth_type = trust
auth_file = ${users}
pool_mode = transaction
server_login_retry = 1
`

const balancerFile = (port: number, nodes: ReadonlyArray<Node>) => `defaults
  mode tcp
  timeout connect 1s
  timeout client 30m
  timeout server 30m
listen leader
  bind 127.0.0.1:${port}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 500ms fall 1 rise 1 on-marked-down shutdown-sessions
${nodes.map(({ name, pooler, rest }) => `  server ${name} 127.0.0.1:${pooler} check port ${rest}\n`).join("")}`

const membersOf = ({ rest }: Node) =>
  Effect.promise(() =>
    fetch(`http://127.0.0.1:${rest}/cluster`).then(
      async (response) => ((await response.json()) as { readonly members: ReadonlyArray<Member> }).members,
      () => []
    )
  )

const postmasterOf = ({ data }: Node): number | undefined => {
  const file = join(data, "postmaster.pid")
  return existsSync(file) ? Number(readFileSync(file, "utf8").split("\n")[0]) : undefined
}

const untilGreeted = (port: number) =>
  eventually(
    "a connection for the service opens",
    Effect.promise(async () => {
      const client = new Client({ host: "127.0.0.1", port, user: "byok", database: "byok" })
      client.on("error", () => undefined)
      return client.connect().then(
        () => client.end().then(() => true),
        () => false
      )
    })
  )

export const newPatroni = Effect.gen(function* () {
  const { etcd, haproxy, patroni, pgbouncer } = yield* programs
  const postgres = yield* installedPostgres(["initdb", "postgres", "pg_ctl", "pg_basebackup", "pg_rewind"])
  const directory = ownDirectory(join(yield* temporaryDirectory, "patroni"))
  const start = (program: string, args: ReadonlyArray<string>) => run(program, args, variables())

  const store = { client: yield* freePort, peer: yield* freePort }
  const [client, peer] = [store.client, store.peer].map((port) => `http://127.0.0.1:${port}`) as [string, string]
  yield* start(etcd, [
    ...["--name=drill", `--data-dir=${join(directory, "etcd")}`, "--logger=zap", "--log-level=error"],
    ...[`--listen-client-urls=${client}`, `--advertise-client-urls=${client}`],
    ...[`--listen-peer-urls=${peer}`, `--initial-advertise-peer-urls=${peer}`, `--initial-cluster=drill=${peer}`]
  ])
  yield* eventually(
    "etcd answers",
    Effect.promise(() =>
      fetch(`${client}/health`).then(
        ({ ok }) => ok,
        () => false
      )
    )
  )

  const users = writeOwn(join(directory, "users"), `"byok" ""\n`)
  const nodes = yield* Effect.forEach(names, (name) =>
    Effect.map(Effect.all([freePort, freePort, freePort]), ([postgres, rest, pooler]): Node => ({
      name,
      data: join(directory, name),
      postgres,
      rest,
      pooler
    }))
  )
  for (const node of nodes) {
    const file = writeOwn(join(directory, `${node.name}.yml`), patroniFile(node, directory, store.client, postgres))
    const { exited, pid } = yield* start(patroni, [file])
    // Patroni stops its PostgreSQL when it is asked to end, and leaves it alone when it is not.
    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        sendTo(pid, "SIGTERM")
        yield* Effect.timeoutOption(exited, "20 seconds")
        const postmaster = postmasterOf(node)
        if (postmaster !== undefined) sendTo(postmaster, "SIGQUIT")
      })
    )
    const pooler = writeOwn(join(directory, `${node.name}.ini`), poolerFile(node, users))
    yield* start(pgbouncer, [pooler])
  }
  const members = Effect.map(Effect.forEach(nodes, membersOf), (all) => all.find(({ length }) => length > 0) ?? [])
  const inRole = (role: string) =>
    Effect.map(members, (all) => all.filter((member) => member.role === role && /running|streaming/.test(member.state)))
  const leader = Effect.gen(function* () {
    const [found] = yield* inRole("leader")
    return nodes.find(({ name }) => name === found?.name)
  })
  yield* eventually(
    "Patroni has a leader and a synchronous standby",
    Effect.map(Effect.all([inRole("leader"), inRole("sync_standby"), members]), ([leaders, standbys, all]) => {
      return leaders.length === 1 && standbys.length === 1 && all.length === nodes.length
    })
  )

  const first = yield* leader
  yield* Effect.promise(async () => {
    const client = new Client({ host: "127.0.0.1", port: first?.postgres ?? 0, user: "postgres", database: "postgres" })
    await client.connect()
    await client.query("CREATE ROLE byok LOGIN")
    await client.query("ALTER ROLE byok SET statement_timeout = 2500")
    await client.query("CREATE DATABASE byok OWNER byok")
    await client.end()
  })
  // As a balancer that has not checked yet may do; PgBouncer then greets as the standby that it was, even if promoted.
  for (const { pooler } of nodes) yield* untilGreeted(pooler)
  const port = yield* freePort
  yield* start(haproxy, ["-db", "-f", writeOwn(join(directory, "haproxy.cfg"), balancerFile(port, nodes))])
  yield* untilGreeted(port)

  const untilAnother = (before: string) =>
    eventually(
      "there is another leader",
      Effect.map(leader, (now) => now !== undefined && now.name !== before)
    )
  const from = (act: (leader: Node) => Effect.Effect<unknown>) =>
    Effect.gen(function* () {
      const before = yield* leader
      if (before === undefined) return yield* Effect.die(new Error("there is no leader"))
      yield* act(before)
      yield* untilAnother(before.name)
    })
  return {
    url: `postgres://byok@127.0.0.1:${port}/byok`,
    switchover: from(({ name, rest }) =>
      Effect.promise(async () => {
        const body = JSON.stringify({ leader: name })
        const response = await fetch(`http://127.0.0.1:${rest}/switchover`, { method: "POST", body })
        if (!response.ok) throw new Error(`Patroni does not switch over: ${await response.text()}`)
      })
    ),
    killPostmaster: from((node) =>
      Effect.sync(() => {
        const postmaster = postmasterOf(node)
        if (postmaster !== undefined) sendTo(postmaster, "SIGKILL")
      })
    )
  } satisfies Patroni
})
