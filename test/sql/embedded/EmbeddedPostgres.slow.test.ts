import { PgClient } from "@effect/sql-pg"
import { Context, Effect, Layer, Redacted, Schedule } from "effect"
import { Reactivity } from "effect/reactivity"
import { spawn } from "node:child_process"
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { prepare } from "../../../src/sql/embedded/DataDirectory.ts"
import { start, type Endpoint } from "../../../src/sql/embedded/EmbeddedPostgres.ts"
import { locate, type PostgresBinaries, repair } from "../../../src/sql/embedded/PostgresBinaries.ts"
import { endpointIn } from "../../support/database/embedded.ts"
import { assert, describe, it, layerLive } from "../../support/it.ts"
import { logLines } from "../../support/process/Recording.ts"
import { runNode } from "../../support/process/runNode.ts"
import { postmasterOf } from "../../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../../support/process/temporaryDirectory.ts"

const isRoot = process.getuid?.() === 0
const ownerScript = join(import.meta.dirname, "EmbeddedPostgresOwner.ts")
const embeddedPostgres = join(import.meta.dirname, "../../../src/sql/embedded/EmbeddedPostgres.ts")

const dataDirectory = Effect.map(temporaryDirectory, (directory) => join(directory, "data"))

const query = (endpoint: Endpoint, statement: string) =>
  Effect.scoped(
    Effect.flatMap(PgClient.make({ ...endpoint }), (sql) => sql.unsafe<Record<string, unknown>>(statement))
  ).pipe(Effect.provide(Reactivity.layer))

/** Fails if it takes longer than any restart may. */
const eventually = <A, E>(effect: Effect.Effect<A, E>) =>
  effect.pipe(Effect.retry(Schedule.spaced("20 millis")), Effect.timeout("20 seconds"), Effect.orDie)

const holds = (condition: () => boolean) =>
  eventually(Effect.filterOrFail(Effect.try({ try: condition, catch: () => "not yet" }), (held) => held))

/** Whether a process with this PID runs; one that waits to be reaped does not count. */
const isRunning = (pid: number) => {
  try {
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "latin1"))
  } catch {
    return false
  }
}

/** Another process that uses the directory until it is asked to end. */
const spawnOwner = (directory: string, user: "service" | "command" = "service") =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn(process.execPath, [ownerScript, directory, user], { stdio: ["pipe", "pipe", "inherit"] })
      const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()))
      const endpoint = new Promise<Endpoint>((resolve, reject) => {
        child.stdout.once("data", (line) => resolve(JSON.parse(String(line)) as Endpoint))
        child.once("exit", (code) => reject(new Error(`the owner ended with ${code}`)))
      })
      endpoint.catch(() => undefined)
      return {
        ready: Effect.promise(() => endpoint),
        end: Effect.andThen(
          Effect.sync(() => child.stdin.end()),
          Effect.promise(() => exited)
        ),
        kill: Effect.andThen(
          Effect.sync(() => child.kill("SIGKILL")),
          Effect.promise(() => exited)
        )
      }
    }),
    ({ end }) => end
  )

describe("a start of the embedded PostgreSQL", () => {
  it.live("serves a durable database on a private socket only, and keeps its data", function* () {
    const directory = yield* dataDirectory
    const pid = yield* Effect.scoped(
      Effect.gen(function* () {
        const endpoint = yield* start(directory)
        assert.deepStrictEqual(endpoint, endpointIn(directory))
        assert.strictEqual(endpoint.host, join(directory, "postgres"))
        const settings = yield* query(
          endpoint,
          `SELECT current_setting('server_version_num')::int / 10000 AS version,
                      current_setting('listen_addresses') AS addresses,
                      current_setting('fsync') AS fsync,
                      current_setting('TimeZone') AS zone,
                      current_setting('server_encoding') AS encoding,
                      current_setting('data_checksums') AS checksums`
        )
        assert.deepStrictEqual(
          { ...settings[0] },
          { version: 18, addresses: "", fsync: "on", zone: "UTC", encoding: "UTF8", checksums: "on" }
        )
        assert.strictEqual(statSync(endpoint.host).mode & 0o777, 0o700)
        assert.strictEqual(statSync(join(endpoint.host, ".s.PGSQL.5432")).mode & 0o777, 0o700)
        yield* query(endpoint, "CREATE TABLE kept AS SELECT 42 AS answer")
        return postmasterOf(directory)
      })
    )
    // The postmaster removes this file as the last thing before it exits.
    assert.isFalse(existsSync(join(directory, "postgres/postmaster.pid")), "the end of the scope waits for the server")
    yield* holds(() => !isRunning(pid))
    const rows = yield* Effect.scoped(
      Effect.flatMap(start(directory), (endpoint) => query(endpoint, "SELECT answer FROM kept"))
    )
    assert.deepStrictEqual(
      rows.map(({ answer }) => answer),
      [42]
    )
  })

  it.live("completes a database whose first start was killed halfway", function* () {
    const directory = yield* dataDirectory
    const owner = yield* spawnOwner(directory)
    yield* holds(() => existsSync(directory) && readdirSync(directory).some((name) => name.includes(".initdb-")))
    yield* owner.kill
    const endpoint = yield* start(directory)
    assert.lengthOf(yield* query(endpoint, "SELECT 1 AS one"), 1)
    assert.deepStrictEqual(readdirSync(directory).sort(), ["postgres", "postgres.password"])
  })

  it.live("gives each of two processes that race for an empty directory a working endpoint", function* () {
    const directory = yield* dataDirectory
    const owners = [yield* spawnOwner(directory), yield* spawnOwner(directory, "command")]
    for (const { ready } of owners) {
      yield* ready
      assert.lengthOf(yield* query(endpointIn(directory), "SELECT 1 AS one"), 1)
    }
    assert.deepStrictEqual(readdirSync(directory).sort(), ["postgres", "postgres.password"])
  })

  it.live("takes over a lock file whose PID now belongs to another program", function* () {
    const directory = yield* dataDirectory
    const file = join(directory, "postgres/postmaster.pid")
    const lock = yield* Effect.scoped(Effect.map(start(directory), () => readFileSync(file, "utf8")))
    const user = isRoot ? { uid: 65534, gid: 65534 } : {}
    const bystander = yield* Effect.acquireRelease(
      Effect.sync(() => spawn("sleep", ["60"], { cwd: "/", ...user })),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    )
    yield* holds(() => readFileSync(`/proc/${bystander.pid}/comm`, "utf8") === "sleep\n")
    writeFileSync(file, lock.replace(/^\d+/, String(bystander.pid)), { mode: 0o600 })
    if (isRoot) chownSync(file, 65534, 65534)
    const endpoint = yield* start(directory)
    assert.lengthOf(yield* query(endpoint, "SELECT 1 AS one"), 1)
  })

  it.live("shows PostgreSQL's output when it fails", function* () {
    const directory = yield* dataDirectory
    yield* Effect.scoped(start(directory))
    writeFileSync(join(directory, "postgres/postgresql.conf"), "no_such_setting = 1\n")
    const error = yield* Effect.flip(start(directory))
    assert.strictEqual(error._tag, "EmbeddedPostgresError")
    assert.match(error.message, /^PostgreSQL could not start in BYOK_DATA_DIR:\n.*no_such_setting/)
  })

  it.live(
    "drops a lock file that has been empty for long, and one of the PostgreSQL of another directory",
    function* () {
      const [directory, other] = [yield* dataDirectory, yield* dataDirectory]
      const file = join(directory, "postgres/postmaster.pid")
      const lock = yield* Effect.scoped(Effect.map(start(directory), () => readFileSync(file, "utf8")))
      const elsewhere = yield* start(other)
      const pid = postmasterOf(other)
      for (const text of ["", lock.replace(/^\d+/, String(pid))]) {
        writeFileSync(file, text, { mode: 0o600 })
        if (isRoot) chownSync(file, 65534, 65534)
        const minuteAgo = Date.now() / 1000 - 60
        utimesSync(file, minuteAgo, minuteAgo)
        yield* Effect.scoped(Effect.flatMap(start(directory), (endpoint) => query(endpoint, "SELECT 1 AS one")))
      }
      assert.strictEqual(postmasterOf(other), pid)
      assert.lengthOf(yield* query(elsewhere, "SELECT 1 AS one"), 1)
    }
  )
})

/** How a client without a password fares. */
const withoutPassword = (endpoint: Endpoint) =>
  query({ ...endpoint, password: Redacted.make("") }, "SELECT 1 AS one").pipe(
    Effect.match({ onFailure: ({ reason }) => reason._tag, onSuccess: () => "let in" })
  )

describe("the password of the embedded PostgreSQL", () => {
  const trust = (directory: string) =>
    writeFileSync(join(directory, "postgres/pg_hba.conf"), "local all all trust\n", { mode: 0o600 })

  it.live("is required of everybody, and kept in a private file beside PostgreSQL's directory", function* () {
    const directory = yield* dataDirectory
    const endpoint = yield* start(directory)
    const { mode, uid } = statSync(join(directory, "postgres.password"))
    assert.deepStrictEqual({ mode: mode & 0o777, uid }, { mode: 0o600, uid: process.getuid?.() })
    assert.strictEqual(yield* withoutPassword(endpoint), "AuthenticationError")
    trust(directory)
    yield* query(endpoint, "SELECT pg_reload_conf()")
    yield* eventually(Effect.filterOrFail(withoutPassword(endpoint), (told) => told === "let in"))
  })

  it.live(
    "is required from the next start on in a directory that trusted everybody, or lost the password",
    function* () {
      const directory = yield* dataDirectory
      yield* Effect.scoped(
        Effect.flatMap(start(directory), (endpoint) => query(endpoint, "CREATE TABLE kept AS SELECT 1 AS one"))
      )
      for (const loses of [trust, () => undefined]) {
        loses(directory)
        rmSync(join(directory, "postgres.password"))
        yield* Effect.scoped(
          Effect.gen(function* () {
            const endpoint = yield* start(directory)
            assert.lengthOf(yield* query(endpoint, "SELECT one FROM kept"), 1)
            assert.strictEqual(yield* withoutPassword(endpoint), "AuthenticationError")
          })
        )
      }
    }
  )

  it.live("is required at once if a killed service left a server running that trusts everybody", function* () {
    const directory = yield* dataDirectory
    const owner = yield* spawnOwner(directory)
    yield* owner.ready
    trust(directory)
    yield* query(endpointIn(directory), "SELECT pg_reload_conf()")
    const pid = postmasterOf(directory)
    yield* eventually(Effect.filterOrFail(withoutPassword(endpointIn(directory)), (told) => told === "let in"))
    const { message } = yield* Effect.flip(start(directory))
    assert.match(message, /^BYOK_DATA_DIR\/postgres\.password is not the password of the database there: stop every /)
    assert.strictEqual(postmasterOf(directory), pid)
    yield* owner.kill
    yield* Effect.scoped(
      Effect.gen(function* () {
        const endpoint = yield* start(directory, "service")
        assert.notStrictEqual(postmasterOf(directory), pid)
        assert.strictEqual(yield* withoutPassword(endpoint), "AuthenticationError")
      })
    )
  })
})

describe("a data directory that cannot be used", () => {
  const refusalOf = (directory: string, binaries: Partial<PostgresBinaries> = {}) =>
    Effect.map(
      Effect.flip(prepare(directory, { initdb: "/bin/false", postgres: "/bin/true", ...binaries })),
      ({ message }) => message
    )
  const saying = (fault: string) => `BYOK_DATA_DIR must be a writable directory: ${fault}.`

  it.live("is reported with BYOK_DATA_DIR and the system's error code, without its path", function* () {
    const directory = yield* temporaryDirectory
    writeFileSync(join(directory, "postgres"), "")
    assert.strictEqual(yield* refusalOf(directory), saying("not a directory (ENOTDIR)"))
    assert.strictEqual(yield* refusalOf(join(directory, "postgres")), saying("file already exists (EEXIST)"))
    assert.strictEqual(yield* refusalOf("/dev/null/x"), saying("not a directory (ENOTDIR)"))
    assert.strictEqual(yield* refusalOf("/proc/x/y"), saying("no such file or directory (ENOENT)"))
  })

  it.live("is reported with initdb's output if initdb fails in it", function* () {
    const directory = yield* temporaryDirectory
    const initdb = join(directory, "initdb")
    writeFileSync(initdb, "#!/bin/sh\necho 'initdb: no, I am afraid' >&2\nexit 1\n", { mode: 0o755 })
    assert.strictEqual(
      yield* refusalOf(join(directory, "data"), { initdb }),
      "PostgreSQL could not create its database in BYOK_DATA_DIR:\ninitdb: no, I am afraid"
    )
  })

  it.live.skipIf(!isRoot)("is reported without a path if PostgreSQL's user may not execute the program", function* () {
    const message = yield* refusalOf(yield* temporaryDirectory, { postgres: "/dev/null/postgres" })
    assert.match(message, /^BYOK_DATA_DIR cannot be used: .* cannot reach the directory or execute PostgreSQL: choose /)
  })
})

describe("the socket", () => {
  it.live("is beside the data; a path too long for it is refused, with the number of excess bytes", function* () {
    const directory = realpathSync(yield* temporaryDirectory)
    const longest = join(directory, "d".repeat(103 - `${directory}//postgres/.s.PGSQL.5432`.length))
    assert.lengthOf(yield* query(yield* start(longest), "SELECT 1 AS one"), 1)
    const { message } = yield* Effect.flip(start(`${longest}ééé`))
    assert.strictEqual(
      message,
      "BYOK_DATA_DIR must be a path that is at least 6 bytes shorter, for PostgreSQL's socket in it."
    )
  })
})

/** A data directory whose database is initialised, and which no test leaves in use. */
class Initialised extends Context.Service<Initialised, string>()("byok/test/Initialised") {
  static readonly layer = Layer.effect(
    this,
    Effect.tap(dataDirectory, (directory) => Effect.scoped(start(directory)))
  )
}

layerLive(Initialised.layer)("the embedded PostgreSQL", (it) => {
  it.effect("PostgreSQL survives a killed service, and the next service takes over its data (R1)", function* () {
    const directory = yield* Initialised
    const owner = yield* spawnOwner(directory)
    yield* owner.ready
    yield* query(endpointIn(directory), "CREATE TABLE survives AS SELECT 42 AS answer")
    const pid = postmasterOf(directory)
    yield* owner.kill
    yield* Effect.scoped(
      Effect.gen(function* () {
        const endpoint = yield* start(directory, "service")
        assert.strictEqual(postmasterOf(directory), pid)
        assert.lengthOf(yield* query(endpoint, "SELECT answer FROM survives"), 1)
      })
    )
    yield* holds(() => !isRunning(pid))
    assert.isFalse(existsSync(join(directory, "postgres/postmaster.pid")), "it was shut down, not killed")
  })

  it.effect("PostgreSQL does not keep the process that started it alive", function* () {
    const directory = yield* Initialised
    const script = `
          import { Effect, Scope } from "effect"
          import { start } from ${JSON.stringify(embeddedPostgres)}
          const scope = await Effect.runPromise(Scope.make())
          await Effect.runPromise(Scope.provide(start(${JSON.stringify(directory)}), scope))`
    const { code } = yield* runNode(["--input-type=module", "-e", script], {
      cwd: join(import.meta.dirname, "../../..")
    })
    assert.strictEqual(code, 0)
    yield* Effect.scoped(start(directory))
  })

  it.effect("PostgreSQL serves one service at a time, and a second one fails with an explanation", function* () {
    const directory = yield* Initialised
    const owner = yield* spawnOwner(directory)
    yield* owner.ready
    const pid = postmasterOf(directory)
    const { message } = yield* Effect.flip(start(directory, "service"))
    assert.strictEqual(
      message,
      "BYOK_DATA_DIR is in use by another service: stop that one or choose another directory. Several services can share a PostgreSQL that DATABASE_URL names."
    )
    assert.isTrue(isRunning(pid))
    yield* owner.end
    yield* Effect.scoped(start(directory, "service"))
  })

  it.effect.each<readonly [first: "service" | "command", second: "service" | "command"]>([
    ["service", "command"],
    ["command", "service"],
    ["command", "command"]
  ])("PostgreSQL started by a %s is shared with a %s, and ends with the last of them", function* ([first, second]) {
    const directory = yield* Initialised
    const owner = yield* spawnOwner(directory, first)
    const { host } = yield* owner.ready
    const pid = postmasterOf(directory)
    yield* Effect.scoped(
      Effect.gen(function* () {
        yield* Effect.scoped(start(directory))
        const endpoint = yield* start(directory, second)
        assert.strictEqual(endpoint.host, host)
        yield* owner.end
        assert.strictEqual(postmasterOf(directory), pid)
        assert.lengthOf(yield* query(endpoint, "SELECT 1 AS one"), 1)
      })
    )
    yield* holds(() => !isRunning(pid))
  })

  it.effect("a crashed PostgreSQL is restarted, even while a client is connected (R3)", function* () {
    const directory = yield* Initialised
    const lines: Array<string> = []
    yield* Effect.scoped(
      Effect.gen(function* () {
        const endpoint = yield* start(directory)
        const busy = yield* Effect.forkChild(Effect.exit(query(endpoint, "SELECT pg_sleep(60)")))
        yield* eventually(
          Effect.filterOrFail(
            query(endpoint, "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'"),
            (rows) => rows.length === 1
          )
        )
        const first = postmasterOf(directory)
        process.kill(first, "SIGKILL")
        yield* holds(() => postmasterOf(directory) !== first)
        assert.lengthOf(yield* eventually(query(endpoint, "SELECT 1 AS one")), 1)
        busy.interruptUnsafe()
      })
    ).pipe(Effect.provide(logLines(lines)))
    assert.deepStrictEqual(lines, ["Warn The embedded PostgreSQL has exited and is being restarted"])
  })

  it.effect("a crashed PostgreSQL is restarted once file descriptors are free, with warnings until then", function* () {
    const directory = yield* Initialised
    const script = `
          import { Effect, Scope } from "effect"
          import { closeSync, openSync } from "node:fs"
          import { start } from ${JSON.stringify(embeddedPostgres)}
          const scope = await Effect.runPromise(Scope.make())
          await Effect.runPromise(Scope.provide(start(${JSON.stringify(directory)}), scope))
          const taken = []
          process.stdin.on("data", (command) => {
            if (String(command) === "free") return taken.forEach(closeSync)
            try {
              for (;;) taken.push(openSync("/dev/null"))
            } catch (error) {
              console.log("taken", error.code)
            }
          })
          console.log("ready")`
    const node = [process.execPath, "--input-type=module", "-e", script]
    const child = spawn("/bin/sh", ["-c", 'ulimit -n 256 && exec "$@"', "sh", ...node], {
      cwd: join(import.meta.dirname, "../../.."),
      stdio: ["pipe", "pipe", "inherit"]
    })
    yield* Effect.addFinalizer(() => Effect.sync(() => child.kill("SIGKILL")))
    let output = ""
    child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text))
    yield* holds(() => output.includes("ready\n"))
    child.stdin.write("take")
    yield* holds(() => output.includes("taken EMFILE\n"))
    const first = postmasterOf(directory)
    process.kill(first, "SIGKILL")
    yield* holds(() => output.includes("EMFILE"))
    child.stdin.write("free")
    assert.lengthOf(yield* eventually(query(endpointIn(directory), "SELECT 1 AS one")), 1)
    assert.notStrictEqual(postmasterOf(directory), first)
    child.kill("SIGKILL")
    yield* eventually(Effect.scoped(start(directory, "service")))
  })
})

describe.runIf(isRoot)("as root", () => {
  it.live("the files of PostgreSQL belong to nobody, in a directory that others can only traverse", function* () {
    const directory = yield* dataDirectory
    yield* start(directory)
    assert.strictEqual(statSync(directory).uid, 0)
    assert.strictEqual(statSync(directory).mode & 0o777, 0o711)
    for (const file of ["postgres", "postgres/PG_VERSION", "postgres/.s.PGSQL.5432"]) {
      const { gid, uid } = statSync(join(directory, file))
      assert.deepStrictEqual({ file, uid, gid }, { file, uid: 65534, gid: 65534 })
    }
    assert.strictEqual(statSync(join(directory, "postgres")).mode & 0o777, 0o700)
    assert.match(readFileSync(`/proc/${postmasterOf(directory)}/status`, "utf8"), /^Uid:\t65534\t65534\t65534/m)
    assert.match(readFileSync(`/proc/${postmasterOf(directory)}/status`, "utf8"), /^Groups:\s*$/m)
  })

  it.live("a directory that the user nobody cannot reach is refused with an explanation", function* () {
    const parent = yield* temporaryDirectory
    chmodSync(parent, 0o700)
    const error = yield* Effect.flip(start(join(parent, "data")))
    assert.match(
      error.message,
      /^BYOK_DATA_DIR cannot be used: PostgreSQL refuses to run as root, and user 65534 cannot /
    )
  })

  /** Runs a shell as PostgreSQL's user, in PostgreSQL's directory, until the scope closes. */
  const asNobody = (directory: string, script: string, ...args: ReadonlyArray<string>) =>
    Effect.acquireRelease(
      Effect.sync(() =>
        spawn("/bin/sh", ["-c", script, "sh", ...args], { cwd: join(directory, "postgres"), uid: 65534, gid: 65534 })
      ),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    )

  it.live.each(["a symbolic link", "a hard link"])(
    "%s to root's file that nobody puts in place of the log is not read; a log of nobody's is (control)",
    function* (kind) {
      const directory = yield* dataDirectory
      yield* Effect.scoped(start(directory))
      const cluster = join(directory, "postgres")
      const file = join(directory, "secret")
      writeFileSync(file, "a secret of root", { mode: 0o644 })
      writeFileSync(join(cluster, "postgresql.conf"), "no_such_setting = 1\n")
      const messageOfStart = Effect.map(Effect.flip(start(directory)), ({ message }) => message)
      assert.include(yield* messageOfStart, "no_such_setting")
      const link = kind === "a hard link" ? "ln" : "ln -s"
      // A hard link needs a file that nobody may write to, where the system protects others' files from such links.
      if (kind === "a hard link") chmodSync(file, 0o666)
      yield* asNobody(directory, `while :; do ${link} "$1" server.log 2>/dev/null; done`, file)
      yield* holds(() => existsSync(join(cluster, "server.log")))
      assert.notInclude(yield* messageOfStart, "a secret of root")
      const { ino, nlink } = statSync(join(cluster, "server.log"))
      assert.deepStrictEqual([ino, nlink], [statSync(file).ino, kind === "a hard link" ? 2 : 1])
    }
  )

  it.live("entries of a leftover that nobody may not delete are not deleted", function* () {
    const directory = yield* dataDirectory
    const remains = join(directory, "postgres.initdb-1-abc")
    for (const name of ["own", "roots"]) {
      mkdirSync(join(remains, name), { recursive: true })
      writeFileSync(join(remains, name, "file"), "")
    }
    for (const path of ["", "own", "own/file"]) chownSync(join(remains, path), 65534, 65534)
    yield* start(directory)
    assert.deepStrictEqual(readdirSync(remains), ["roots"])
    assert.deepStrictEqual(readdirSync(join(remains, "roots")), ["file"])
  })

  it.live("a data directory in a folder of another user is refused, and its mode is kept", function* () {
    const home = yield* temporaryDirectory
    const target = join(yield* temporaryDirectory, "private")
    mkdirSync(target, { mode: 0o700 })
    symlinkSync(target, join(home, "data"))
    chownSync(home, 65534, 65534)
    const { message } = yield* Effect.flip(start(join(home, "data")))
    assert.strictEqual(
      message,
      `BYOK_DATA_DIR must be a directory that only root and this user can change; found that user 65534 can change ${home}.`
    )
    assert.strictEqual(statSync(target).mode & 0o777, 0o700)
    chownSync(home, 0, 0)
    yield* start(join(home, "data"))
    assert.strictEqual(statSync(target).mode & 0o777, 0o711)
  })

  it.live("a process of nobody logs in only with the password, which it cannot read", function* () {
    const directory = yield* dataDirectory
    const { host, password } = yield* start(directory)
    const program = `
      process.setgroups([]); process.setgid(65534); process.setuid(65534)
      const { readFileSync } = await import("node:fs")
      const { default: pg } = await import("pg")
      const [host, file, password] = process.argv.slice(1)
      const client = new pg.Client({ host, user: "byok", database: "postgres", password })
      const told = await client.connect().then(() => "connected", ({ code, message }) => code ?? message)
      await client.end().catch(() => undefined)
      let read
      try { read = readFileSync(file, "utf8") } catch (error) { read = error.code }
      console.log(told, read)`
    const logIn = (...given: ReadonlyArray<string>) =>
      Effect.map(
        runNode(["--input-type=module", "-e", program, host, join(directory, "postgres.password"), ...given], {
          cwd: join(import.meta.dirname, "../../..")
        }),
        ({ stderr, stdout }) => stdout + stderr
      )
    assert.match(yield* logIn(), /password must be a string EACCES\n$/)
    assert.strictEqual(yield* logIn("wrong"), "28P01 EACCES\n")
    assert.strictEqual(yield* logIn(Redacted.value(password)), "connected EACCES\n")
  })
})

describe("the programs of PostgreSQL", () => {
  it.live("are missing on other platforms, and the error advises DATABASE_URL", function* () {
    const error = yield* Effect.flip(locate("win32", "x64"))
    assert.strictEqual(
      error.message,
      "No embedded PostgreSQL is installed for win32-x64: set DATABASE_URL to the PostgreSQL to use."
    )
  })

  it.live("get the links and permissions that the installation lacks", function* () {
    const root = yield* temporaryDirectory
    const programs = ["initdb", "pg_ctl", "postgres"]
    for (const path of ["native/bin", "native/lib"]) mkdirSync(join(root, path), { recursive: true })
    for (const file of [...programs.map((name) => `native/bin/${name}`), "native/lib/libpq.so.5.18"]) {
      writeFileSync(join(root, file), file, { mode: 0o644 })
    }
    symlinkSync("elsewhere", join(root, "native/lib/libpq.so"))
    writeFileSync(
      join(root, "native/pg-symlinks.json"),
      JSON.stringify(
        ["native/lib/libpq.so", "native/lib/libpq.so.5"].map((target) => ({
          source: "native/lib/libpq.so.5.18",
          target
        }))
      )
    )
    const expected: Record<string, string> = Object.fromEntries(
      programs.map((name) => [name, join(root, "native/bin", name)])
    )
    for (const attempt of ["first", "second"]) {
      assert.deepStrictEqual({ ...repair(root) }, expected, attempt)
      assert.deepStrictEqual(readdirSync(join(root, "native/lib")).sort(), ["libpq.so", "libpq.so.5", "libpq.so.5.18"])
      assert.strictEqual(readlinkSync(join(root, "native/lib/libpq.so.5")), "libpq.so.5.18")
      assert.strictEqual(readFileSync(join(root, "native/lib/libpq.so"), "utf8"), "native/lib/libpq.so.5.18")
      for (const binary of Object.values(expected)) assert.strictEqual(statSync(binary).mode & 0o777, 0o755)
    }
  })
})
