import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { Client } from "pg"
import { run } from "../support/process/ChildProcess.ts"
import { type DatabaseNode, localHaproxy, localPatroni, localPgBouncer } from "./DatabaseNode.ts"
import { freePort } from "../support/database/listen.ts"
import { statusOf } from "../bench/statusOf.ts"
import { eventually } from "../support/process/eventually.ts"
import { installedPrograms, programVariables } from "../support/process/installedPrograms.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { ownDirectory, sendTo, writeOwn } from "./Cluster.ts"
import { installedPostgres } from "./installedPostgres.ts"

/** PostgreSQL on three nodes under Patroni and etcd, each with a PgBouncer, behind one HAProxy, as in deploy/postgresql. */
export interface Patroni {
  /** HAProxy, which leads to the leader's PgBouncer; over TLS if there is a certificate. */
  readonly url: string
  /** Patroni hands the lead to a standby, and returns once there is another leader. */
  readonly switchover: Effect.Effect<void>
  /** Kills the leader's postmaster, and returns once there is another leader. */
  readonly killPostmaster: Effect.Effect<void>
}

/** A certificate for 127.0.0.1, and its key. */
export interface Tls {
  readonly certificate: string
  readonly key: string
}

const names = ["one", "two", "three"] as const

const example = (name: string) => readFileSync(join(import.meta.dirname, "../../deploy/postgresql", name), "utf8")

/** A member as Patroni's REST API shows it. */
interface Member {
  readonly name: string
  readonly role: string
  readonly state: string
}

const membersOf = ({ rest }: DatabaseNode) =>
  Effect.promise(() =>
    fetch(`http://127.0.0.1:${rest}/cluster`).then(
      async (response) => ((await response.json()) as { readonly members: ReadonlyArray<Member> }).members,
      () => []
    )
  )

const postmasterOf = ({ data }: DatabaseNode): number | undefined => {
  const file = join(data, "postmaster.pid")
  return existsSync(file) ? Number(readFileSync(file, "utf8").split("\n")[0]) : undefined
}

const untilGreeted = (port: number, ssl: { readonly ca: string } | undefined) =>
  eventually(
    "a connection for the service opens",
    Effect.promise(async () => {
      const client = new Client({ host: "127.0.0.1", port, user: "byok", database: "byok", ...(ssl && { ssl }) })
      client.on("error", () => undefined)
      return client.connect().then(
        () => client.end().then(() => true),
        () => false
      )
    })
  )

export const newPatroni = Effect.fnUntraced(function* (tls?: Tls) {
  const { etcd, haproxy, patroni, pgbouncer } = yield* installedPrograms(["patroni", "etcd", "haproxy", "pgbouncer"])
  const postgres = yield* installedPostgres(["initdb", "postgres", "pg_ctl", "pg_basebackup", "pg_rewind"])
  const directory = ownDirectory(join(yield* temporaryDirectory, "patroni"))
  const start = (program: string, args: ReadonlyArray<string>) => run(program, args, programVariables())

  const store = { client: yield* freePort, peer: yield* freePort }
  const [client, peer] = [store.client, store.peer].map((port) => `http://127.0.0.1:${port}`) as [string, string]
  yield* start(etcd, [
    ...["--name=drill", `--data-dir=${join(directory, "etcd")}`, "--logger=zap", "--log-level=error"],
    ...[`--listen-client-urls=${client}`, `--advertise-client-urls=${client}`],
    ...[`--listen-peer-urls=${peer}`, `--initial-advertise-peer-urls=${peer}`, `--initial-cluster=drill=${peer}`]
  ])
  yield* eventually(
    "etcd answers",
    Effect.promise(() => statusOf(`${client}/health`)),
    (status) => status === 200
  )

  const files = tls && {
    certificate: writeOwn(join(directory, "node.pem"), tls.certificate),
    key: writeOwn(join(directory, "node.key"), tls.key)
  }
  const ssl = tls && { ca: tls.certificate }
  const users = writeOwn(join(directory, "users"), `"byok" ""\n`)
  const nodes = yield* Effect.forEach(names, (name) =>
    Effect.map(Effect.all([freePort, freePort, freePort]), ([postgres, rest, pooler]): DatabaseNode => ({
      name,
      data: join(directory, name),
      postgres,
      rest,
      pooler
    }))
  )
  for (const node of nodes) {
    const file = writeOwn(
      join(directory, `${node.name}.yml`),
      localPatroni(example("patroni.yml"), node, { directory, etcd: store.client, programs: postgres })
    )
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
    const pooler = writeOwn(
      join(directory, `${node.name}.ini`),
      localPgBouncer(example("pgbouncer.ini"), node, users, files)
    )
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
  for (const { pooler } of nodes) yield* untilGreeted(pooler, ssl)
  const port = yield* freePort
  yield* start(haproxy, [
    "-db",
    "-f",
    writeOwn(join(directory, "haproxy.cfg"), localHaproxy(example("haproxy.cfg"), port, nodes))
  ])
  yield* untilGreeted(port, ssl)

  const untilAnother = (before: string) =>
    eventually("there is another leader", leader, (now) => now !== undefined && now.name !== before)
  const from = (act: (leader: DatabaseNode) => Effect.Effect<unknown>) =>
    Effect.gen(function* () {
      const before = yield* leader
      if (before === undefined) return yield* Effect.die(new Error("there is no leader"))
      yield* act(before)
      yield* untilAnother(before.name)
    })
  return {
    url: `postgres://byok@127.0.0.1:${port}/byok${tls === undefined ? "" : "?sslmode=verify-full"}`,
    switchover: from(({ name, rest }) =>
      // Refused as long as Patroni does not know the standby's state.
      eventually(
        "Patroni switches over",
        Effect.promise(async () => {
          const body = JSON.stringify({ leader: name })
          return (await fetch(`http://127.0.0.1:${rest}/switchover`, { method: "POST", body })).ok
        })
      )
    ),
    killPostmaster: from((node) =>
      Effect.sync(() => {
        const postmaster = postmasterOf(node)
        if (postmaster !== undefined) sendTo(postmaster, "SIGKILL")
      })
    )
  } satisfies Patroni
})
