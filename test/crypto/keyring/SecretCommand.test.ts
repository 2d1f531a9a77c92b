import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Fiber } from "effect"
import { limits, type SecretCommand, withOutputOf } from "../../../src/crypto/keyring/SecretCommand.ts"
import { eventually } from "../../support/process/eventually.ts"
import { temporaryDirectory } from "../../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../../support/it.ts"

const PATH = process.env["PATH"] ?? ""

const command = (program: string, ...args: ReadonlyArray<string>): SecretCommand => ({ program, args, env: { PATH } })
const shell = (script: string) => command("sh", "-c", script)

const refusal = (asked: SecretCommand, lowered = limits) =>
  Effect.map(Effect.flip(withOutputOf(asked, String, lowered)), ({ message }) => message)
const found = "expected a command that prints the keyring; found that"

const isRunning = (pid: number) => {
  try {
    process.kill(pid, 0)
    // A process that has ended may wait for its parent.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))
  } catch {
    return false
  }
}

describe("a command that prints a secret (docs/keys.md, The keyring from a command)", () => {
  it.live("gets its arguments as they are, without a shell, and only the variables that are passed", function* () {
    process.env["BYOK_TEST_UNNAMED"] = "unnamed"
    const printed = withOutputOf(command("printf", "%s|", "$HOME", "a b", "*;`id`"), String)
    assert.strictEqual(yield* printed, "$HOME|a b|*;`id`|")
    const variables = yield* withOutputOf({ ...command("env"), env: { PATH, NAMED: "x y" } }, String)
    assert.sameMembers(variables.trim().split("\n"), [`PATH=${PATH}`, "NAMED=x y"])
    Reflect.deleteProperty(process.env, "BYOK_TEST_UNNAMED")
  })

  it.live("has its output wiped after use", function* () {
    const output = yield* withOutputOf(command("printf", "secret"), (bytes) => {
      assert.strictEqual(bytes.toString(), "secret")
      return bytes
    })
    assert.deepStrictEqual(output, Buffer.alloc(6))
  })

  it.live("that fails is named with its exit code and the last line of standard error, not its output", function* () {
    const failing = "echo canary; echo first >&2; printf 'access \\033[31mdenied.\\n\\n' >&2; exit 3"
    assert.strictEqual(yield* refusal(shell(failing)), `${found} sh ended with exit code 3: access [31mdenied`)
    assert.strictEqual(yield* refusal(shell("echo canary; exit 4")), `${found} sh ended with exit code 4`)
    assert.strictEqual(yield* refusal(shell("kill -TERM $$")), `${found} sh ended with SIGTERM`)
    const long = yield* refusal(shell("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1"))
    assert.strictEqual(long, `${found} sh ended with exit code 1: ${"x".repeat(300)}`)
  })

  it.live("that cannot be run is named without its arguments", function* () {
    assert.strictEqual(
      yield* refusal(command("/nowhere/fetch-keyring", "canary")),
      `${found} fetch-keyring cannot be run: no such file or directory (ENOENT)`
    )
    const file = join(yield* temporaryDirectory, "not-a-program")
    writeFileSync(file, "")
    chmodSync(file, 0o600)
    assert.strictEqual(
      yield* refusal(command(file)),
      `${found} not-a-program cannot be run: permission denied (EACCES)`
    )
  })

  it.live("may print 64 KiB, and is ended with the first byte more", function* () {
    assert.deepStrictEqual(limits, { millis: 30_000, bytes: 65_536 })
    const all = yield* withOutputOf(command("head", "-c", "65536", "/dev/zero"), ({ length }) => length)
    assert.strictEqual(all, 65_536)
    assert.strictEqual(yield* refusal(command("cat", "/dev/zero")), `${found} cat printed more than 65536 bytes`)
  })

  it.live("is ended with all that it started when it takes too long or nobody waits any more", function* () {
    const file = join(yield* temporaryDirectory, "pids")
    const hanging = shell(`sleep 600 & echo $! $$ > ${file}.new; mv ${file}.new ${file}; sleep 600`)
    const started = eventually("it is running", () => existsSync(file))
    const pids = () => readFileSync(file, "utf8").trim().split(" ").map(Number)
    const isOver = eventually("nothing of it runs", () => !pids().some(isRunning))

    const waiting = yield* Effect.forkChild(withOutputOf(hanging, String))
    yield* started
    assert.isTrue(pids().every(isRunning), "control")
    yield* Fiber.interrupt(waiting)
    yield* isOver

    const late = yield* refusal(hanging, { ...limits, millis: 1500 })
    assert.strictEqual(late, `${found} sh did not end within 1.5 seconds`)
    yield* isOver
  })
})
