import { Context, type Duration, type Option } from "effect"
import type { AccountEvent } from "../domain/AuditEvent.ts"
import type { CurrentPrincipal } from "../domain/Principal.ts"
import type { EntryPage } from "./AuditLog.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** An event of any account, or of none, with the members that its action has. */
export interface FeedEvent {
  readonly id: string
  readonly seq: number
  /** In ISO 8601. */
  readonly at: string
  readonly action: string
  readonly actor: object
}

/** The events of the audit log, for those whom they concern. */
export class Events extends Context.Service<
  Events,
  {
    /**
     * The events of the `CurrentPrincipal`'s account, the newest first, or in order with `after`. A page is never cut within a
     * `seq`, and there may be more after any page that is not empty.
     * @effect-expect-leaking CurrentPrincipal
     */
    readonly list: (page: Omit<EntryPage, "account_id">) => Answer<ReadonlyArray<AccountEvent>, never, CurrentPrincipal>
    /**
     * The events of all accounts after a `seq`, in order; waits for the next one if there is none. Invariant: whoever goes
     * on after `last_seq` gets every committed event once, in order, however late it is committed. So an event comes once
     * no transaction can commit one before it, about a second after its commit.
     */
    readonly next: (
      after: number,
      limit: number,
      wait?: Duration.Input
    ) => Answer<{ readonly events: ReadonlyArray<FeedEvent>; readonly last_seq: number }>
  }
>()("byok/Events") {}

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
