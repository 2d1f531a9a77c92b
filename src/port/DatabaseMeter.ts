import { Context } from "effect"

/** The connections for reads, those for writes, and the one for work that no caller waits for. */
export type LaneName = "reads" | "writes" | "background"

/** Measures what one lane is asked. */
export interface LaneMeter {
  /** `error` is the kind of the failure. */
  readonly ran: (operation: string, seconds: number, error: string | undefined) => void
  readonly batched: (operation: string, size: number) => void
  /** How long a request waited for its batch to start. */
  readonly waited: (seconds: number) => void
  readonly refused: () => void
  /** Adds what `read` returns to the depth of the queue. */
  readonly queue: (read: () => number) => void
}

const nothing: LaneMeter = {
  ran: () => {},
  batched: () => {},
  waited: () => {},
  refused: () => {},
  queue: () => {}
}

/** Measures nothing unless it is replaced. */
export const DatabaseMeter = Context.Reference<(lane: LaneName) => LaneMeter>("byok/DatabaseMeter", {
  defaultValue: () => () => nothing
})
