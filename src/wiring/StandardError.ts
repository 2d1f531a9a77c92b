import { Console as NodeConsole } from "node:console"
import { writeSync } from "node:fs"
import { Console, Context, Effect } from "effect"

/** Writes bytes and answers with how many of them were taken, or throws the error of the system. */
type Write = (bytes: Buffer) => number

/** How bytes reach standard error; a test may replace it. */
export const WriteLog = Context.Reference<Write>("byok/WriteLog", {
  defaultValue: () => {
    // Node makes a pipe non-blocking once the stream is asked for: a reader that stops does not stop the service.
    const { fd } = process.stderr
    return (bytes) => writeSync(fd, bytes)
  }
})

/** How many characters wait for the reader of a pipe: about a second of a busy service's access log. */
const mostWaiting = 4 * 1024 * 1024

/** Milliseconds until a full pipe is tried again. */
const retryAfter = 5

/** Milliseconds for which the end of the process waits for a reader. */
const patience = 2000

const sleep = (milliseconds: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)

/**
 * Joins the lines of one turn of the event loop into one write. Each line is written once and in order; or, if the reader
 * of a pipe lets too many wait, left out and counted.
 */
const joinLines = (write: Write, leftOut: (lines: number) => void) => {
  let lines = ""
  /** Of the write that was begun last. */
  let rest = Buffer.alloc(0)
  let missing = 0
  let isScheduled = false

  /** Returns whether all was taken. */
  const flush = (): boolean => {
    try {
      while (rest.length > 0 || lines !== "") {
        if (rest.length === 0) {
          rest = Buffer.from(lines)
          lines = ""
        }
        rest = rest.subarray(write(rest))
      }
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EAGAIN") return false
      // Nobody reads any more, or the disk is full: there is no other place to say so.
      rest = Buffer.alloc(0)
      lines = ""
    }
    return true
  }
  const report = () => {
    const count = missing
    missing = 0
    if (count > 0) leftOut(count)
  }
  const endTurn = () => {
    isScheduled = !flush()
    if (isScheduled) setTimeout(endTurn, retryAfter).unref()
    else report()
  }
  return {
    write: (line: string) => {
      if (lines.length + rest.length + line.length > mostWaiting) return void (missing += 1)
      lines += line
      if (isScheduled) return
      isScheduled = true
      setImmediate(endTurn)
    },
    end: () => {
      const giveUp = performance.now() + patience
      while (!flush() && performance.now() < giveUp) sleep(retryAfter)
      report()
      flush()
    }
  }
}

/** The console with standard error in joined lines, all of them written when the scope closes or the process ends. */
export const makeConsole = (leftOut: (lines: number) => void) =>
  Effect.gen(function* () {
    const { end, write } = joinLines(yield* WriteLog, leftOut)
    yield* Effect.acquireRelease(
      Effect.sync(() => process.on("exit", end)),
      () =>
        Effect.sync(() => {
          process.off("exit", end)
          end()
        })
    )
    const stderr = Object.assign(Object.create(process.stderr) as NodeJS.WriteStream, { write })
    const joined = new NodeConsole({ stdout: stderr, stderr, ignoreErrors: false })
    return Object.assign(Object.create(yield* Console.Console) as Console.Console, {
      error: (...parts: ReadonlyArray<unknown>) => joined.error(...parts),
      group: (...parts: ReadonlyArray<unknown>) => joined.group(...parts),
      groupEnd: () => joined.groupEnd()
    })
  })
