import { setImmediate } from "node:timers/promises"
import { pathToFileURL } from "node:url"
import { resolve } from "node:path"
import { ConfigProvider, Console, Effect, Layer } from "effect"
import * as Logging from "../../src/wiring/Logging.ts"
import { makeConsole, WriteLog } from "../../src/wiring/StandardError.ts"
import { assert, describe, it } from "../support/it.ts"
import { takeLog } from "../support/process/Recording.ts"
import { eventually } from "../support/process/eventually.ts"
import { runProgram } from "../support/process/runNode.ts"

const formats = ["pretty", "logfmt", "json"]

const logTo = <A>(effect: Effect.Effect<A>, write: Layer.Layer<never>, LOG_FORMAT = "json") =>
  Effect.provide(effect, Layer.fresh(Logging.layer)).pipe(
    Effect.provide(write),
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: { LOG_FORMAT } }))
  )

const nextTurn = Effect.promise(() => setImmediate())
const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => from + n)
const logLines = (from: number, to: number) =>
  Effect.forEach(numbers(from, to), (n) => Effect.logInfo(`line ${n}.`), { discard: true })
const linesIn = (text: string) => Array.from(text.matchAll(/line (\d+)\./g), ([, n]) => Number(n))
const systemError = (code: string) => Object.assign(new Error(code), { code })

describe("standard error", () => {
  it.live.each(formats)("gets lines of one event loop turn in one write, in order, in format %s", function* (format) {
    const { layer, writes } = takeLog()
    const turns = Effect.gen(function* () {
      yield* nextTurn
      yield* logLines(0, 20)
      yield* Console.error("line 20.")
      yield* logLines(21, 30)
      assert.deepStrictEqual(writes, [])
      yield* nextTurn
      yield* nextTurn
      assert.lengthOf(writes, 1)
      yield* logLines(30, 40)
    })
    yield* logTo(turns, layer, format)
    assert.deepStrictEqual(writes.map(linesIn), [numbers(0, 30), numbers(30, 40)])
    assert.match(writes[0] ?? "", /\n$/)
  })

  it.live("gets each line once, however few bytes a pipe accepts at a time", function* () {
    let [text, calls] = ["", 0]
    const reluctant = Layer.succeed(WriteLog, (bytes) => {
      calls += 1
      if (calls % 3 === 0) throw systemError("EAGAIN")
      text += bytes.subarray(0, 1000).toString()
      return Math.min(1000, bytes.length)
    })
    const turns = Effect.forEach(numbers(0, 10), (n) =>
      Effect.andThen(logLines(20 * n, 20 * n + 20), Effect.sleep("4 millis"))
    )
    yield* logTo(turns, reluctant)
    assert.deepStrictEqual(linesIn(text), numbers(0, 200))
  })

  it.live("buffers a bounded number of lines if nobody reads, and later says how many are missing", function* () {
    let [isRead, text] = [false, ""]
    const stuck = Layer.succeed(WriteLog, (bytes) => {
      if (!isRead) throw systemError("EAGAIN")
      text += bytes.toString()
      return bytes.length
    })
    const written = 20_000
    const turns = Effect.gen(function* () {
      for (let n = 0; n < written; n += 1) yield* Effect.logInfo(`line ${n}.`, "x".repeat(400))
      isRead = true
      yield* eventually("the number", () => text.includes("missing"))
      yield* Effect.logInfo("line 0.")
    })
    yield* logTo(turns, stuck)
    const missing = Number(/"(\d+) lines are missing/.exec(text)?.[1])
    const lines = linesIn(text)
    assert.isBelow(text.length, 4.1 * 1024 * 1024)
    assert.deepStrictEqual(lines, [...numbers(0, written - missing), 0])
    assert.isBelow(missing, written - 5_000)
  })
})

/** A console on a pipe with room as `hasRoom` says, what it has written, and its listener for the end of the process. */
const consoleOn = Effect.fnUntraced(function* (hasRoom: (call: number) => boolean = () => true) {
  const log = { text: "", calls: 0 }
  const others = new Set(process.listeners("exit"))
  const console: Console.Console = yield* Effect.provideService(
    makeConsole((count) => console.error(`${count} are missing`)),
    WriteLog,
    (bytes) => {
      log.calls += 1
      if (!hasRoom(log.calls)) throw systemError("EAGAIN")
      log.text += bytes.toString()
      return bytes.length
    }
  )
  const end = process.listeners("exit").find((listener) => !others.has(listener)) ?? assert.fail("no listener")
  return { console, end: () => end(0), log }
})

describe("the console on standard error", () => {
  it.live("writes exactly what it was given, indented in groups", function* () {
    const { console, log } = yield* consoleOn()
    console.group("group")
    console.error("inside")
    console.groupEnd()
    console.error("outside")
    yield* Effect.andThen(nextTurn, nextTurn)
    assert.strictEqual(log.text, "group\n  inside\noutside\n")
  })

  it.live("buffers 4 MiB of text, and counts the lines that it drops beyond that", function* () {
    const { console, end, log } = yield* consoleOn()
    const line = "x".repeat(4 * 1024 * 1024 - 1)
    console.error(line)
    for (const _ of ["one", "another"]) console.error("y")
    end()
    assert.isTrue(log.text === `${line}\n2 are missing\n`)
  })

  it.live("retries a full pipe after a pause, not with every line", function* () {
    let hasRoom = false
    const { console, log } = yield* consoleOn(() => hasRoom)
    const began = performance.now()
    for (const n of numbers(0, 500)) {
      console.error(`line ${n}.`)
      yield* nextTurn
    }
    assert.isAtMost(log.calls, 2 + (performance.now() - began) / 4)
    hasRoom = true
    yield* eventually("the lines", () => log.text !== "")
    assert.deepStrictEqual(linesIn(log.text), numbers(0, 500))
  })

  it.live("waits at most two seconds for its reader when the process ends", function* () {
    const slow = yield* consoleOn((call) => call > 3)
    slow.console.error("line 0.")
    const began = performance.now()
    slow.end()
    assert.isAbove(performance.now() - began, 3 * 4)
    assert.strictEqual(slow.log.text, "line 0.\n")
    let isStuck = true
    const stuck = yield* consoleOn(() => !isStuck)
    stuck.console.error("line 0.")
    const waited = performance.now()
    stuck.end()
    assert.isAtLeast(performance.now() - waited, 2000)
    assert.isBelow(stuck.log.calls, 600)
    assert.strictEqual(stuck.log.text, "")
    isStuck = false
  })

  it.live("drops lines that fail with EPIPE, and removes its exit listener with its scope", function* () {
    const listeners = process.listenerCount("exit")
    let isBroken = true
    const log = yield* Effect.scoped(
      Effect.gen(function* () {
        const { console, end, log } = yield* consoleOn(() => {
          if (isBroken) throw systemError("EPIPE")
          return true
        })
        console.error("lost")
        end()
        isBroken = false
        console.error("last")
        return log
      })
    )
    assert.strictEqual(log.text, "last\n")
    assert.strictEqual(process.listenerCount("exit"), listeners)
  })
})

const effect = pathToFileURL(resolve("node_modules/effect/dist/index.js")).href
const logging = pathToFileURL(resolve("src/wiring/Logging.ts")).href
const platform = pathToFileURL(resolve("node_modules/@effect/platform-node/dist/NodeRuntime.js")).href

/** More than a pipe holds. */
const many = 3_000

/** Logs many lines in one turn and then ends as the statement says, while nobody reads for a moment. */
const endWith = (statement: string, before = "") => {
  const program = `
    import { Effect } from "${effect}"
    import { runMain } from "${platform}"
    import * as Logging from "${logging}"
    runMain(Effect.gen(function* () {
      for (let n = 0; n < ${many}; n += 1) yield* Effect.logInfo("line " + n + ".")
      ${before}
      ${statement}
    }).pipe(Effect.provide(Logging.layer)), { disableErrorReporting: true })
  `
  const shell = `("$0" --input-type=module -e "$1"; echo "code $?") 2>&1 | (sleep 0.5; cat)`
  return runProgram("/bin/sh", ["-c", shell, process.execPath, program], { variables: { LOG_FORMAT: "json" } })
}

const ends: Record<string, readonly [statement: string, code: number]> = {
  "ends normally": ["", 0],
  fails: [`return yield* Effect.fail("failed")`, 1],
  "calls process.exit": ["process.exit(3)", 3],
  "throws a defect that nobody catches": [
    `process.nextTick(() => { throw new Error("defect") }); yield* Effect.never`,
    1
  ],
  "rejects a promise that nobody handles": [`Promise.reject(new Error("defect")); yield* Effect.never`, 1],
  "receives SIGTERM": [`process.kill(process.pid, "SIGTERM"); yield* Effect.never`, 130]
}

describe("a process that logs", () => {
  it.live.each(Object.entries(ends))("loses no line when it %s", function* ([, [statement, code]]) {
    const { stdout } = yield* endWith(statement)
    assert.deepStrictEqual(linesIn(stdout), numbers(0, many))
    assert.match(stdout, new RegExp(`^code ${code}$`, "m"))
  })

  it.live("loses lines if it does not flush at exit (control)", function* () {
    const { stdout } = yield* endWith("process.exit(3)", `process.removeAllListeners("exit")`)
    assert.isBelow(linesIn(stdout).length, many)
  })
})
