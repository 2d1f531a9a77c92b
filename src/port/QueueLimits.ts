import { Context } from "effect"

/** Everything that DATABASE_QUEUE limits (D14, F9). */
export interface QueueLimits {
  /** Statements that wait or run in one connection pool: reads, writes and background work have one each. */
  readonly statements: number
  /** Requests of one account that wait or are in progress, in all. */
  readonly account: number
  /** Requests of one account in progress while no other account is active: the other half of the queue stays free. */
  readonly accountAlone: number
  /** Look-ups of all tokens together that are not yet known to belong to an account. */
  readonly unknownTokens: number
  /** Lines that an import handles at a time, or its own limit if that is lower: more would be refused. */
  readonly imports: number
}

/** Derives the limits from DATABASE_QUEUE. */
export const queueLimits = (queue: number): QueueLimits => ({
  statements: queue,
  account: queue,
  accountAlone: Math.max(1, Math.floor(queue / 2)),
  unknownTokens: Math.max(1, Math.floor(queue / 4)),
  imports: queue
})

export const QueueLimits = Context.Reference("byok/QueueLimits", { defaultValue: () => queueLimits(2000) })
