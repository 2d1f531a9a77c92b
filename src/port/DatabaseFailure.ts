import { Data, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** What a store answers. It refuses if too much is queued (D14), and dies with a `DatabaseFailure` if its database fails. */
export type Answer<A, E = never, R = never> = Effect.Effect<A, E | ServiceUnavailable, R>

/** PostgreSQL is down, starting, stopping or a replica, a pooler has no connection, or a name does not resolve yet. */
const transient =
  /^(ECONNREFUSED|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|ENOENT|ENOTFOUND|EAI_AGAIN|08...|57P0[123]|25006)$/

/**
 * The defect that a port dies with if its database fails. All that is kept of the error is its kind, SQLSTATE (or the
 * system's error code if no server answered) and constraint. Messages and details are dropped, because they quote values.
 */
export class DatabaseFailure extends Data.TaggedError("DatabaseFailure")<{
  readonly kind: string
  readonly sqlstate: string | undefined
  readonly constraint: string | undefined
}> {
  override get message() {
    return [this.kind, this.sqlstate, this.constraint].filter((part) => part !== undefined).join(" ")
  }

  /** Whether a later attempt may succeed by itself. */
  get isTransient() {
    return transient.test(this.sqlstate ?? "")
  }
}
