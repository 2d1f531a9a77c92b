import { Context, type Duration, type Option } from "effect"
import type { AccountEvent } from "../domain/AuditEvent.ts"
import type { InvalidParams } from "../domain/Errors.ts"
import type { CurrentPrincipal } from "../domain/Principal.ts"
import type { EntryPage } from "./AuditLog.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Reads the events in the audit log, for an account or for the subscriber to all accounts. */
export class Events extends Context.Service<
  Events,
  {
    /**
     * The events of the `CurrentPrincipal`'s account that follow one of them: newest first, or with `after` oldest first.
     * Invariant: continuing from any event yields all others once, in order. Only an empty page shows that no more follow.
     * @effect-expect-leaking CurrentPrincipal
     */
    readonly list: (page: EventPage) => Answer<ReadonlyArray<AccountEvent>, InvalidParams, CurrentPrincipal>
    /**
     * The events of up to `limit` entries after the `seq` `after`, of all accounts; waits up to `wait` for the first.
     * Invariant: continuing after `last_seq` yields every committed event once, in order. So an event appears when no
     * earlier one can still be committed, about a second after its commit.
     */
    readonly next: (
      after: number,
      limit: number,
      wait?: Duration.Input
    ) => Answer<{ readonly events: ReadonlyArray<FeedEvent>; readonly last_seq: number }>
  }
>()("byok/Events") {}

/** Selects a page of an account's events, of up to `limit` entries. */
export interface EventPage extends Pick<EntryPage, "credential_id" | "limit"> {
  /** The id of an event. */
  readonly before?: string
  /** The id of an event, or 0 to begin with the first. */
  readonly after?: string
}

/** An event of an account or of the service. Further members depend on its action. */
export interface FeedEvent {
  readonly id: string
  readonly seq: number
  /** In ISO 8601. */
  readonly at: string
  readonly action: string
  readonly actor: object
}

/** The events delivered to the subscriber: all up to the `seq` `after`, and the first `done` of the next `seq`. */
export interface Progress {
  readonly after: number
  readonly done: number
}

/** The subscriber's progress and backlog. */
export interface CursorState extends Progress {
  /** Failed deliveries since the last success. */
  readonly failures: number
  /** Seconds until the next attempt after a failure. */
  readonly pause: number
  /** Undelivered entries, counted up to 10,001. */
  readonly waiting: number
  /** Age of the oldest of them in seconds. */
  readonly lag: number
  /** Whether this instance should deliver: entries wait, there is no pause, and no other instance delivers them. */
  readonly isDue: boolean
}

/**
 * The subscriber's cursor in the database. Invariant: one holder at a time moves it. Its lease ends 30 seconds after
 * its last step, which frees the cursor of a killed instance.
 */
export class EventCursor extends Context.Service<
  EventCursor,
  {
    /** None before the first `take`. */
    readonly state: Answer<Option.Option<CursorState>>
    /** Takes the cursor unless it has a holder or pauses. A new cursor begins after the newest event. */
    readonly take: (holder: string) => Answer<Option.Option<Progress>>
    /** Moves the cursor and resets failures. Returns false, without moving it, if it has another holder. */
    readonly advance: (holder: string, to: Progress) => Answer<boolean>
    /** Frees the cursor. Each failure in a row doubles the pause in which nobody can take it, up to five minutes. */
    readonly free: (holder: string, hasFailed: boolean) => Answer<void>
  }
>()("byok/EventCursor") {}
