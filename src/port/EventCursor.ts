import { Context, type Option } from "effect"
import type { Answer } from "./DatabaseFailure.ts"

/** How far a subscriber has got: it has all events up to `after`, and the first `done` of the next `seq`. */
export interface Progress {
  readonly after: number
  readonly done: number
}

/** The progress of the one subscriber, and what is left for it. */
export interface CursorState extends Progress {
  /** Deliveries that failed since the last that succeeded. */
  readonly failures: number
  /** Seconds until the next attempt after a failure. */
  readonly pause: number
  /** Entries that wait, counted as far as 10,001, and for how many seconds the oldest one has. */
  readonly waiting: number
  readonly lag: number
  /** Whether there is something to deliver that no other instance delivers, and no pause. */
  readonly isDue: boolean
}

/**
 * The cursor of the subscriber to events in the database. Invariant: at most one holder delivers at a time, for 30 seconds
 * after its last step, so that an instance that was killed frees it; the cursor only moves in steps of its holder.
 */
export class EventCursor extends Context.Service<
  EventCursor,
  {
    /** None before the first delivery. */
    readonly state: Answer<Option.Option<CursorState>>
    /** Takes the cursor if it is free and in no pause; a new one begins after the newest event. */
    readonly take: (holder: string) => Answer<Option.Option<Progress>>
    /** Moves the cursor and ends a series of failures. False if it has another holder: the step did not take place. */
    readonly advance: (holder: string, to: Progress) => Answer<boolean>
    /** Frees the cursor; after a failure, for a pause that doubles up to five minutes. */
    readonly free: (holder: string, hasFailed: boolean) => Answer<void>
  }
>()("byok/EventCursor") {}
