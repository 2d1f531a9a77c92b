import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import { Effect } from "effect"
import { parse } from "yaml"
import { ownDirectory, writeOwn } from "../drill/Cluster.ts"
import { installedPostgres } from "../drill/installedPostgres.ts"
import { localPatroni, localPgBouncer } from "../drill/DatabaseNode.ts"
import { freePort, listen } from "../support/database/listen.ts"
import { run } from "../support/process/ChildProcess.ts"
import { eventually } from "../support/process/eventually.ts"
import { installedPrograms, programVariables } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { broken, type Check, problemsOf } from "./Check.ts"

export const haproxy: Check = {
  piece: "postgresql/haproxy.cfg",
  run: (deploy) =>
    Effect.gen(function* () {
      const { haproxy } = yield* installedPrograms(["haproxy"])
      const file = join(deploy, "postgresql/haproxy.cfg")
      const checked = yield* runProgram(haproxy, ["-c", "-f", file], { variables: programVariables() })
      const asksPooler = /^ *http-check connect port \d+$/m.test(readFileSync(file, "utf8"))
      return [...problemsOf(checked), ...broken([asksPooler, "a leader without its PgBouncer stays one"])]
    }),
  mistakes: [
    ["postgresql/haproxy.cfg", "option httpchk", "option httpcheck"],
    ["postgresql/haproxy.cfg", "  http-check connect port 6432\n", ""],
    ["postgresql/haproxy.cfg", "connect port 6432", "connect ports 6432"],
    ["postgresql/haproxy.cfg", "shutdown-sessions", "shutdown-session"]
  ]
}

const accepts = (port: number) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect(port, "127.0.0.1")
    socket.once("connect", () => resume(Effect.succeed(true))).once("error", () => resume(Effect.succeed(false)))
    return Effect.sync(() => socket.destroy())
  })

/** PgBouncer has no command that checks a file, so it is started; it refuses what it does not know. */
export const pgbouncer: Check = {
  piece: "postgresql/pgbouncer.ini",
  run: (deploy) =>
    Effect.gen(function* () {
      const { pgbouncer } = yield* installedPrograms(["pgbouncer"])
      const directory = ownDirectory(join(yield* temporaryDirectory, "pgbouncer"))
      const [postgres, rest, pooler] = yield* Effect.all([freePort, freePort, freePort])
      const node = { name: "one", data: directory, postgres, rest, pooler }
      const example = readFileSync(join(deploy, "postgresql/pgbouncer.ini"), "utf8")
      const users = writeOwn(join(directory, "users"), `"byok" ""\n`)
      const file = writeOwn(join(directory, "pgbouncer.ini"), localPgBouncer(example, node, users))
      const { exitCode, lastWords } = yield* run(pgbouncer, [file], programVariables())
      yield* eventually(
        "PgBouncer listens or ends",
        Effect.gen(function* () {
          return exitCode() !== undefined || (yield* accepts(pooler))
        })
      )
      const refused = lastWords()
        .split("\n")
        .filter((line) => /ERROR|FATAL/.test(line))
      return [...refused, ...broken([exitCode() === undefined, `it ends with exit code ${exitCode()}`])]
    }),
  mistakes: [
    ["postgresql/pgbouncer.ini", "pool_mode = transaction", "pool_mod = transaction"],
    ["postgresql/pgbouncer.ini", "pool_mode = transaction", "pool_mode = transactions"]
  ]
}

/** The settings that protect the two ways to run commands on the nodes. */
const guards = {
  restapi: ["certfile", "keyfile", "cafile", "allowlist", "authentication"],
  etcd3: ["cacert", "cert", "key", "username", "password"]
}

export const closedPatroni: Check = {
  piece: "postgresql/patroni.yml for strangers",
  run: (deploy) => {
    const file = parse(readFileSync(join(deploy, "postgresql/patroni.yml"), "utf8")) as Record<
      keyof typeof guards,
      Readonly<Record<string, unknown>>
    >
    const open = Object.entries(guards).flatMap(([part, names]) =>
      names
        .filter((name) => file[part as keyof typeof guards][name] === undefined)
        .map((name) => `${part} has no ${name}`)
    )
    return [...open, ...broken([file.etcd3["protocol"] === "https", "etcd is asked without TLS"])]
  },
  mistakes: [
    ["postgresql/patroni.yml", "  authentication: { username: patroni", "  auth: { username: pa"],
    ["postgresql/patroni.yml", "  allowlist:", "  allow:"],
    ["postgresql/patroni.yml", "protocol: https", "protocol: http"],
    ["postgresql/patroni.yml", "  username: patroni\n", ""]
  ]
}

export const patroni: Check = {
  piece: "postgresql/patroni.yml",
  run: (deploy) =>
    Effect.gen(function* () {
      const { patroni } = yield* installedPrograms(["patroni"])
      const programs = yield* installedPostgres(["initdb", "postgres", "pg_ctl", "pg_basebackup", "pg_rewind"])
      const directory = yield* temporaryDirectory
      const [postgres, rest, pooler] = yield* Effect.all([freePort, freePort, freePort])
      const data = join(directory, "data")
      mkdirSync(data)
      const file = join(directory, "patroni.yml")
      const example = readFileSync(join(deploy, "postgresql/patroni.yml"), "utf8")
      // Patroni wants to see that something listens where etcd is.
      const etcd = yield* listen((socket) => socket.destroy())
      const node = { name: "one", data, postgres, rest, pooler }
      // Its validator knows 127.0.0.1 as an address that no other node can reach.
      const local = localPatroni(example, node, { directory, etcd, programs })
      writeFileSync(file, local.replaceAll('"connect_address":"127.0.0.1', '"connect_address":"127.0.0.2'))
      const variables = programVariables()
      return problemsOf(yield* runProgram(patroni, ["--validate-config", file], { variables }))
    }),
  mistakes: [
    ["postgresql/patroni.yml", "ttl: 20", "ttl: soon"],
    ["postgresql/patroni.yml", "scope: byok", "scopes: byok"]
  ]
}
