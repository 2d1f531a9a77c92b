import { Context } from "effect"

/** Everything that DATABASE_QUEUE limits (D14, F9). */
export interface QueueLimits {
  /** Statements that wait or run in one connection pool: reads, writes and background work have one each. */
  readonly statements: number
  /** Requests in progress on one connection pool, over all accounts: they fill the batches that run and the next ones. */
  readonly inProgress: number
  /** Requests of one account, or of all unknown tokens, that wait to be in progress. */
  readonly waiting: number
  /** Lines that an import handles at a time, or its own limit if that is lower: more would be refused. */
  readonly imports: number
}

/** Derives the limits from DATABASE_QUEUE. */
export const queueLimits = (queue: number): QueueLimits => {
  const inProgress = Math.ceil(queue / 8)
  return { statements: queue, inProgress, waiting: queue - inProgress, imports: queue }
}

export const QueueLimits = Context.Reference("byok/QueueLimits", { defaultValue: () => queueLimits(2000) })
