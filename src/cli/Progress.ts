import { Clock, Effect } from "effect"
import { StandardStreams } from "./Output.ts"

/** A bar that fills the width beside the numbers, up to 40 columns. `done` is from 0 to 1. */
const bar = (numbers: string, done: number | undefined, columns: number) => {
  const width = Math.min(40, columns - numbers.length - 4)
  if (done === undefined || width < 5) return numbers.slice(0, columns - 1)
  const filled = Math.floor(Math.min(1, done) * width)
  return `[${"#".repeat(filled)}${" ".repeat(width - filled)}] ${numbers}`
}

/**
 * Reports progress on standard error: a bar redrawn in place on a terminal, a line every second elsewhere. `part` is how much
 * is done, from 0 to 1; undefined if that cannot be known.
 */
export const makeProgress = Effect.fnUntraced(function* <P>(
  line: (progress: P) => string,
  part: (progress: P) => number | undefined = () => undefined
) {
  const { stderr: screen } = yield* StandardStreams
  const terminal = screen.isTTY === true
  const interval = terminal ? 100 : 1000
  let next = 0
  let pending: P | undefined
  let shown = false
  const show = (progress: P) => {
    pending = undefined
    shown = true
    screen.write(
      terminal ? `\r${bar(line(progress), part(progress), screen.columns || 80)}\x1b[K` : `${line(progress)}\n`
    )
  }
  return {
    report: (progress: P) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        pending = progress
        if (now < next) return
        next = now + interval
        show(progress)
      }),
    end: Effect.sync(() => {
      if (pending !== undefined) show(pending)
      if (shown && terminal) screen.write("\n")
    })
  }
})
