import { spawnSync } from "node:child_process"
import { join } from "node:path"
import { inject } from "vitest"
import { Effect } from "effect"
import { migratedDatabase } from "../support/database/freshDatabase.ts"
import { listen } from "../support/database/listen.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { createAccount, textIn } from "../support/process/CommandLine.ts"
import { byokScript, runByok } from "../support/process/runByok.ts"
import { runNode, runProgram } from "../support/process/runNode.ts"
import { assert, describe, it } from "../support/it.ts"

/** Makes a network namespace, from which only a database on a Unix socket can be reached; root needs no user namespace. */
const namespace = [process.getuid?.() === 0 ? "-n" : "-rn", "sh", "-c", 'ip link set lo up && exec "$0" "$@"']
const reason = !inject("serverUrl").includes("host=%2F")
  ? "the database is not on a Unix socket"
  : spawnSync("unshare", [...namespace, "test", "-w", "/proc/sys/net/ipv4/tcp_migrate_req"]).status !== 0
    ? "no network namespace can be made"
    : undefined

const begin = Effect.gen(function* () {
  const settings = { BYOK_KEYRING: ringOf("kek"), DATABASE_URL: yield* migratedDatabase }
  const MANAGEMENT_KEY = textIn(yield* createAccount(settings), "management_key")
  return { ...settings, MANAGEMENT_KEY }
})

const rollingRestart = Effect.fnUntraced(function* (...args: ReadonlyArray<string>) {
  const program = [process.execPath, join(import.meta.dirname, "RollingRestart.ts"), ...args]
  const { code, stderr, stdout } = yield* runProgram("unshare", [...namespace, ...program], { variables: yield* begin })
  assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
  return JSON.parse(stdout) as { answered: number; failed: Record<string, number>; warnings: string }
})

describe.skipIf(reason !== undefined)(
  `two instances with BYOK_REUSE_PORT=true on one port${reason === undefined ? "" : ` (skipped: ${reason})`}`,
  () => {
    it.live(
      "fail no request when they are restarted one after the other under load",
      function* () {
        const { answered, failed, warnings } = yield* rollingRestart("1", "SIGTERM")
        assert.deepStrictEqual(failed, {})
        assert.isAbove(answered, 100)
        assert.strictEqual(warnings, "")
      },
      120_000
    )

    it.live(
      "fail requests if killed (control), and warn if net.ipv4.tcp_migrate_req is 0",
      function* () {
        const { failed, warnings } = yield* rollingRestart("0", "SIGKILL", "1")
        assert.isNotEmpty(failed)
        assert.match(warnings, /WARN .*net\.ipv4\.tcp_migrate_req is 0, so new connections may be reset/)
      },
      120_000
    )
  }
)

describe("BYOK_REUSE_PORT=true", () => {
  it.live("is refused in one sentence if the port is taken, or the system cannot share ports", function* () {
    const { MANAGEMENT_KEY: _, ...settings } = yield* begin
    const port = yield* listen(() => undefined)
    const variables = { ...settings, BYOK_REUSE_PORT: "true", LOG_LEVEL: "error", PORT: String(port) }
    const stderr = `Port ${port} on 127.0.0.1 is in use by a process of another user or without BYOK_REUSE_PORT=true.\n`
    assert.deepStrictEqual(yield* runByok(["serve"], variables), { code: 1, stdout: "", stderr })

    const refuse = `import { Server } from "node:net"
        Server.prototype.listen = function () {
          this.emit("error", Object.assign(new Error(), { code: "ENOTSUP" }))
        }`
    const unable = ["--import", `data:text/javascript,${encodeURIComponent(refuse)}`, byokScript, "serve"]
    assert.deepStrictEqual(yield* runNode(unable, { variables }), {
      code: 1,
      stdout: "",
      stderr: "BYOK_REUSE_PORT must be false: this operating system does not let processes share a port.\n"
    })
  })
})
