import { Context, type Duration } from "effect"
import type { AccountEvent } from "../domain/AuditEvent.ts"
import type { CurrentCaller } from "../domain/CurrentCaller.ts"
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
     * The events of the `CurrentCaller`'s account, the newest first, or in order with `after`. A page is never cut within a
     * `seq`, and there may be more after any page that is not empty.
     * @effect-expect-leaking CurrentCaller
     */
    readonly list: (page: Omit<EntryPage, "account_id">) => Answer<ReadonlyArray<AccountEvent>, never, CurrentCaller>
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
