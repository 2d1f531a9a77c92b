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

/** How many characters may wait for the reader of a pipe: about one second of a busy service's access log. */
const bufferLimit = 4 * 1024 * 1024

/** How many milliseconds to wait before writing to a full pipe again. */
const retryDelay = 5

/** How many milliseconds an exiting process waits for the reader of a pipe. */
const exitTimeout = 2000

const sleep = (milliseconds: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds)

/**
 * Joins the lines of one turn of the event loop into one write. Writes each line once and in order. While too many
 * characters wait for the reader of a pipe, omits further lines, and passes their number to `onOmitted` afterwards.
 */
const joinLines = (write: Write, onOmitted: (lines: number) => void) => {
  let lines = ""
  /** The unwritten rest of the last write. */
  let rest = Buffer.alloc(0)
  let omitted = 0
  let isScheduled = false

  /** Writes what waits. Returns false if the pipe is full. */
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
  const reportOmitted = () => {
    const count = omitted
    omitted = 0
    if (count > 0) onOmitted(count)
  }
  /** Writes at the end of a turn, and again later while the pipe is full. */
  const endTurn = () => {
    isScheduled = !flush()
    if (isScheduled) setTimeout(endTurn, retryDelay).unref()
    else reportOmitted()
  }
  return {
    write: (line: string) => {
      if (lines.length + rest.length + line.length > bufferLimit) return void (omitted += 1)
      lines += line
      if (isScheduled) return
      isScheduled = true
      setImmediate(endTurn)
    },
    /** Blocks until everything is written, or `exitTimeout` has passed. */
    end: () => {
      const deadline = performance.now() + exitTimeout
      while (!flush() && performance.now() < deadline) sleep(retryDelay)
      reportOmitted()
      flush()
    }
  }
}

/**
 * Makes a console that joins lines on standard error. Writes waiting lines when the scope closes or the process exits.
 * Passes the number of lines omitted because nobody read them to `onOmitted`.
 */
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
