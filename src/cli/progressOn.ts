import { Clock, Effect } from "effect"
import type { RewrapProgress } from "../service/Rotation.ts"

/** What progress needs of standard error, be it a terminal or not. */
interface Screen {
  readonly isTTY?: boolean
  /** 0 if the terminal does not know its width. */
  readonly columns?: number
  readonly write: (text: string) => unknown
}

const line = ({ failed, rewrapped, total }: RewrapProgress) =>
  `rewrapped ${rewrapped} of ${total} credentials, ${failed} failed`

/** A bar that fills the width beside the numbers, up to 40 columns. */
const bar = (progress: RewrapProgress, columns: number) => {
  const numbers = line(progress)
  const width = Math.min(40, columns - line({ ...progress, rewrapped: progress.total }).length - 4)
  if (width < 5) return numbers.slice(0, columns - 1)
  const part = Math.min(1, (progress.rewrapped + progress.failed) / Math.max(1, progress.total))
  const filled = Math.floor(part * width)
  return `[${"#".repeat(filled)}${" ".repeat(width - filled)}] ${numbers}`
}

/** Reports the progress of a rewrap: a bar redrawn in place on a terminal, a line every second elsewhere. */
export const progressOn = (screen: Screen) => {
  const terminal = screen.isTTY === true
  const interval = terminal ? 100 : 1000
  let next = 0
  let pending: RewrapProgress | undefined
  let shown = false
  const show = (progress: RewrapProgress) => {
    pending = undefined
    shown = true
    screen.write(terminal ? `\r${bar(progress, screen.columns || 80)}\x1b[K` : `${line(progress)}\n`)
  }
  return {
    report: (progress: RewrapProgress) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        pending = progress
        if (now < next) return
        next = now + interval
        show(progress)
      }),
    /** Shows the final numbers. */
    end: Effect.sync(() => {
      if (pending !== undefined) show(pending)
      if (shown && terminal) screen.write("\n")
    })
  }
}
