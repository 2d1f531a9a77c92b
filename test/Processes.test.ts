import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { createOver, getOver, idIn } from "./support/callByok.ts"
import { eventually } from "./support/eventually.ts"
import { StartedBefore } from "./support/firstStart.ts"
import { ringOf } from "./support/rotating.ts"
import { isRunning, isShutDown, startService } from "./support/ServiceProcess.ts"

const credential = { provider: "groq", key: "fake-key-fake-key" }

/** The processes that a process has started and that run Node.js. */
const nodesOf = (parent: number): ReadonlyArray<number> =>
  readdirSync("/proc")
    .map(Number)
    .filter(Number.isInteger)
    .filter((pid) => {
      try {
        const [, ppid] = readFileSync(`/proc/${pid}/stat`, "utf8")
          .replace(/^.*\) /s, "")
          .split(" ")
        return Number(ppid) === parent && readFileSync(`/proc/${pid}/cmdline`, "utf8").endsWith("\0serve\0")
      } catch {
        return false
      }
    })

layer(StartedBefore.layer, { excludeTestServices: true })("a service of several processes", (it) => {
  it.effect.skipIf(process.platform !== "linux")(
    "serves one port, replaces a process that was killed, and stops as a whole",
    () =>
      Effect.gen(function* () {
        const { key, settings } = yield* StartedBefore
        const { ended, pid, signal, stderr, stdout, url } = yield* startService({
          ...settings,
          BYOK_PROCESSES: "2",
          LOG_LEVEL: "info"
        })
        const created = yield* createOver(url, key, credential)
        assert.strictEqual(created.status, 201)
        yield* eventually(
          "both serve",
          Effect.sync(() => stderr().includes("Process 2 serves"))
        )
        const victim = Math.max(...nodesOf(pid))
        process.kill(victim, "SIGKILL")
        yield* eventually(
          "another one has taken its place",
          Effect.sync(() => nodesOf(pid).length === 2 && !nodesOf(pid).includes(victim))
        )
        assert.deepStrictEqual(yield* getOver(url, key, idIn(created)), { status: 200, body: created.body })
        assert.deepStrictEqual(stdout().match(/as process \d+/g), [`as process ${pid}`])
        const processes = nodesOf(pid)
        yield* signal("SIGTERM")
        assert.strictEqual(yield* ended, 0)
        assert.isFalse(processes.some(isRunning))
        assert.isTrue(isShutDown(settings.BYOK_DATA_DIR))
      })
  )

  it.effect.skipIf(process.platform !== "linux")(
    "SIGHUP, while it starts and when it serves, ends no process and makes every one read the keyring again",
    () =>
      Effect.gen(function* () {
        const { settings } = yield* StartedBefore
        const BYOK_PROCESSES = "2"
        const { ended, pid, signal, stderr } = yield* startService({ ...settings, BYOK_PROCESSES, LOG_LEVEL: "info" })
        yield* signal("SIGHUP")
        yield* eventually(
          "both serve",
          Effect.sync(() => stderr().includes("Process 2 serves"))
        )
        const processes = nodesOf(pid)
        assert.lengthOf(processes, 2)
        const keyring = join(settings.BYOK_DATA_DIR, "keyring")
        writeFileSync(keyring, `${ringOf("next")}\n${readFileSync(keyring, "utf8")}`)
        yield* signal("SIGHUP")
        yield* eventually(
          "both have read it again",
          Effect.sync(() => (stderr().match(/The keyring was read again: next seals/g)?.length ?? 0) >= 2)
        )
        assert.deepStrictEqual(nodesOf(pid), processes)
        yield* signal("SIGTERM")
        yield* signal("SIGHUP")
        assert.strictEqual(yield* ended, 0)
      })
  )
})
