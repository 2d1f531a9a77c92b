import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { layerLive } from "../support/process/layerLive.ts"
import { minimal } from "../support/http/Bodies.ts"
import { createOver, getOver, idIn } from "../support/http/callByok.ts"
import { eventually } from "../support/process/eventually.ts"
import { StartedBefore } from "../support/process/firstStart.ts"
import { freshDatabase } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { byokScript } from "../support/process/runByok.ts"
import { runNode } from "../support/process/runNode.ts"
import { isRunning, isShutDown, type ServiceProcess, startService } from "../support/process/ServiceProcess.ts"
import { workersOf } from "../support/process/workersOf.ts"

layerLive(StartedBefore.layer)("a service of several processes", (it) => {
  it.effect.skipIf(process.platform !== "linux")(
    "serves one port, replaces a killed process, and stops as a whole",
    () =>
      Effect.gen(function* () {
        const { key, settings } = yield* StartedBefore
        const { ended, pid, signal, stderr, stdout, url } = yield* startService({
          ...settings,
          BYOK_PROCESSES: "2",
          LOG_LEVEL: "info"
        })
        const created = yield* createOver(url, key, minimal)
        assert.strictEqual(created.status, 201)
        yield* eventually(
          "both serve",
          Effect.sync(() => stderr().includes("Process 2 is serving"))
        )
        const victim = Math.max(...workersOf(pid))
        process.kill(victim, "SIGKILL")
        yield* eventually(
          "another one has taken its place",
          Effect.sync(() => workersOf(pid).length === 2 && !workersOf(pid).includes(victim))
        )
        assert.deepStrictEqual(yield* getOver(url, key, idIn(created)), { status: 200, body: created.body })
        assert.deepStrictEqual(stdout().match(/as process \d+/g), [`as process ${pid}`])
        const processes = workersOf(pid)
        yield* signal("SIGTERM")
        assert.strictEqual(yield* ended, 0)
        assert.isFalse(processes.some(isRunning))
        assert.isTrue(isShutDown(settings.BYOK_DATA_DIR))
      })
  )

  it.effect.skipIf(process.platform !== "linux")(
    "SIGHUP, during the start and later, ends no process and makes every one reload the keyring",
    () =>
      Effect.gen(function* () {
        const { settings } = yield* StartedBefore
        const BYOK_PROCESSES = "2"
        const { ended, pid, signal, stderr } = yield* startService({ ...settings, BYOK_PROCESSES, LOG_LEVEL: "info" })
        yield* signal("SIGHUP")
        yield* eventually(
          "both serve",
          Effect.sync(() => stderr().includes("Process 2 is serving"))
        )
        const processes = workersOf(pid)
        assert.lengthOf(processes, 2)
        const keyring = join(settings.BYOK_DATA_DIR, "keyring")
        writeFileSync(keyring, `${ringOf("next")}\n${readFileSync(keyring, "utf8")}`)
        yield* signal("SIGHUP")
        yield* eventually(
          "both have read it again",
          Effect.sync(() => (stderr().match(/Keyring reloaded: next seals/g)?.length ?? 0) >= 2)
        )
        assert.deepStrictEqual(workersOf(pid), processes)
        yield* signal("SIGTERM")
        yield* signal("SIGHUP")
        assert.strictEqual(yield* ended, 0)
      })
  )

  it.effect.skipIf(process.platform !== "linux")("stops its processes together, though one takes long", () =>
    Effect.gen(function* () {
      const { settings } = yield* StartedBefore
      const { ended, pid, signal, stderr } = yield* startService({
        ...settings,
        BYOK_PROCESSES: "2",
        LOG_LEVEL: "info"
      })
      yield* eventually(
        "both serve",
        Effect.sync(() => stderr().includes("Process 2 is serving"))
      )
      const [one = 0, other = 0] = [...workersOf(pid)].sort((a, b) => b - a)
      yield* Effect.acquireUseRelease(
        Effect.sync(() => process.kill(one, "SIGSTOP")),
        () =>
          Effect.gen(function* () {
            yield* signal("SIGTERM")
            yield* eventually(
              "the other one has stopped",
              Effect.sync(() => !isRunning(other))
            )
            assert.isTrue(isRunning(one))
          }),
        () => Effect.sync(() => process.kill(one, "SIGCONT"))
      )
      assert.strictEqual(yield* ended, 0)
      assert.notInclude(stderr(), "restarted")
    })
  )

  it.effect("ends with the sentence of a process that cannot start, and exit code 1", () =>
    Effect.gen(function* () {
      const { settings } = yield* StartedBefore
      const variables = { ...settings, HOST: "192.0.2.1", PORT: "0", BYOK_PROCESSES: "2", LOG_LEVEL: "error" }
      assert.deepStrictEqual(yield* runNode([byokScript, "serve"], { variables }), {
        code: 1,
        stdout: "",
        stderr: "HOST and PORT must be an address that is free to listen on.\nA process exited before it was serving.\n"
      })
    })
  )
})

const probe = join(import.meta.dirname, "../support/process/EnvironmentProbe.ts")

/** A service with database and keyring from the environment, whose processes report what is left of them there. */
const startProbed = (variables: Record<string, string>) =>
  Effect.gen(function* () {
    const secrets = { BYOK_KEYRING: ringOf("kek"), DATABASE_URL: yield* freshDatabase }
    return yield* startService({ ...secrets, ...variables, LOG_LEVEL: "info" }, [
      "--import",
      probe,
      byokScript,
      "serve"
    ])
  })

const answersOf = ({ stderr }: ServiceProcess, pid: number) =>
  Effect.gen(function* () {
    const before = stderr().length
    const answer = () => new RegExp(`^probe ${pid} (.*)$`, "m").exec(stderr().slice(before))?.[1]
    process.kill(pid, "SIGUSR2")
    yield* eventually(
      `${pid} has answered`,
      Effect.sync(() => answer() !== undefined)
    )
    return JSON.parse(answer() ?? "") as unknown
  })

const isReady = (url: string) =>
  Effect.promise(() =>
    fetch(`${url}/health/ready`, { headers: { connection: "close" }, signal: AbortSignal.timeout(1_000) }).then(
      ({ ok }) => ok,
      () => false
    )
  )

describe.skipIf(process.platform !== "linux")("no serving process still has the secrets it was given", () => {
  const nothing = { environment: ["PORT"], config: ["PORT"] }

  it.live("in its environment or in Effect's Config; a copy that Effect made is found (control)", () =>
    Effect.gen(function* () {
      const service = yield* startProbed({})
      assert.deepStrictEqual(yield* answersOf(service, service.pid), nothing)
      const control = yield* startProbed({ PROBE_LOOKS_FIRST: "yes" })
      assert.deepStrictEqual(yield* answersOf(control, control.pid), {
        environment: ["PORT"],
        config: ["BYOK_KEYRING", "DATABASE_URL", "PORT"]
      })
    })
  )

  it.live("nor does the one that starts the others with them, even after replacing a killed one", () =>
    Effect.gen(function* () {
      const service = yield* startProbed({ BYOK_PROCESSES: "2" })
      yield* eventually(
        "both serve",
        Effect.sync(() => service.stderr().includes("Process 2 is serving"))
      )
      const [victim = 0, other = 0] = workersOf(service.pid)
      for (const pid of [service.pid, victim, other]) assert.deepStrictEqual(yield* answersOf(service, pid), nothing)
      yield* Effect.acquireUseRelease(
        Effect.sync(() => process.kill(other, "SIGSTOP")),
        () => {
          process.kill(victim, "SIGKILL")
          return eventually("the one in its place serves", isReady(service.url))
        },
        () => Effect.sync(() => process.kill(other, "SIGCONT"))
      )
      assert.deepStrictEqual(yield* answersOf(service, service.pid), nothing)
    })
  )
})
