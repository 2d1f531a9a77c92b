import { Clock, Effect } from "effect"
import type { RewrapProgress } from "../service/Rotation.ts"

/** As much of a terminal, or of another standard error, as progress needs. */
interface Screen {
  readonly isTTY?: boolean
  /** 0 where the terminal does not know. */
  readonly columns?: number
  readonly write: (text: string) => unknown
}

const line = ({ failed, rewrapped, total }: RewrapProgress) =>
  `rewrapped ${rewrapped} of ${total} credentials, ${failed} failed`

/** A bar as wide as the terminal lets it be beside the numbers. */
const bar = (progress: RewrapProgress, columns: number) => {
  const numbers = line(progress)
  const width = Math.min(40, columns - line({ ...progress, rewrapped: progress.total }).length - 4)
  if (width < 5) return numbers.slice(0, columns - 1)
  const part = Math.min(1, (progress.rewrapped + progress.failed) / Math.max(1, progress.total))
  const filled = Math.floor(part * width)
  return `[${"#".repeat(filled)}${" ".repeat(width - filled)}] ${numbers}`
}

/** Tells how far a rewrap is: a bar that is drawn anew on a terminal, a line every second elsewhere. */
export const progressOn = (screen: Screen) => {
  const terminal = screen.isTTY === true
  const pause = terminal ? 100 : 1000
  let next = 0
  let untold: RewrapProgress | undefined
  let told = false
  const show = (progress: RewrapProgress) => {
    untold = undefined
    told = true
    screen.write(terminal ? `\r${bar(progress, screen.columns || 80)}\x1b[K` : `${line(progress)}\n`)
  }
  return {
    tell: (progress: RewrapProgress) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        untold = progress
        if (now < next) return
        next = now + pause
        show(progress)
      }),
    /** Shows what it ended with. */
    end: Effect.sync(() => {
      if (untold !== undefined) show(untold)
      if (told && terminal) screen.write("\n")
    })
  }
}
