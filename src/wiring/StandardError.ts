import { Console as NodeConsole } from "node:console"
import { writeSync } from "node:fs"
import { Console, Context, Effect } from "effect"

/** Writes bytes and returns how many were written, or throws the system's error. */
type Write = (bytes: Buffer) => number

/** Writes to standard error; tests replace it. */
export const WriteLog = Context.Reference<Write>("byok/WriteLog", {
  defaultValue: () => {
    // Accessing the stream makes Node set a pipe non-blocking, so that a stalled reader does not stop the service.
    const { fd } = process.stderr
    return (bytes) => writeSync(fd, bytes)
  }
})

/** How many characters may wait for the reader of a pipe: about a second of a busy service's access log. */
const bufferLimit = 4 * 1024 * 1024

/** Milliseconds before writing to a full pipe again. */
const retryDelay = 5

/** How many milliseconds the process waits for a reader at its end. */
const exitTimeout = 2000

const sleep = (milliseconds: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)

/**
 * Joins the lines of one turn of the event loop into one write. Writes each line once and in order. Omits and counts further
 * lines while too many wait for the reader of a pipe.
 */
const joinLines = (write: Write, onOmitted: (lines: number) => void) => {
  let lines = ""
  /** The unwritten rest of the last write. */
  let rest = Buffer.alloc(0)
  let omitted = 0
  let isScheduled = false

  /** Returns whether everything is written. */
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
      // The reader is gone or the disk is full; there is nowhere to report it.
      rest = Buffer.alloc(0)
      lines = ""
    }
    return true
  }
  const report = () => {
    const count = omitted
    omitted = 0
    if (count > 0) onOmitted(count)
  }
  const endTurn = () => {
    isScheduled = !flush()
    if (isScheduled) setTimeout(endTurn, retryDelay).unref()
    else report()
  }
  return {
    write: (line: string) => {
      if (lines.length + rest.length + line.length > bufferLimit) return void (omitted += 1)
      lines += line
      if (isScheduled) return
      isScheduled = true
      setImmediate(endTurn)
    },
    end: () => {
      const giveUp = performance.now() + exitTimeout
      while (!flush() && performance.now() < giveUp) sleep(retryDelay)
      report()
      flush()
    }
  }
}

/** A console that joins lines on standard error, and writes all of them when the scope closes or the process ends. */
export const makeConsole = (onOmitted: (lines: number) => void) =>
  Effect.gen(function* () {
    const { end, write } = joinLines(yield* WriteLog, onOmitted)
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
