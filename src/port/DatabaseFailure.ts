import { Data, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** What a store returns. Fails under overload (D14), and dies with a `DatabaseFailure` if the database fails. */
export type Answer<A, E = never, R = never> = Effect.Effect<A, E | ServiceUnavailable, R>

/** Codes of a PostgreSQL that is down, starting, stopping or read-only, a full pooler, or an unresolved host. */
const transientCodes =
  /^(ECONNREFUSED|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|ENOENT|ENOTFOUND|EAI_AGAIN|08...|57P0[123]|25006)$/

/** Explanations of faults that need no stack, by SQLSTATE. */
const explainedFaults: Readonly<Record<string, string>> = {
  "25P02": "an earlier statement of the transaction failed",
  "42501": "the user lacks a permission",
  "53100": "the disk of the database is full",
  "53300": "the database takes no more connections"
}

/** The defect of a failed database, without its messages, which quote values. `sqlstate` may be ENOENT or the like. */
export class DatabaseFailure extends Data.TaggedError("DatabaseFailure")<{
  /** The tag of an error or reason of Effect, or a kind of our own such as `Deadline` or `UnknownOutcome`. */
  readonly kind: string
  readonly sqlstate: string | undefined
  readonly constraint: string | undefined
}> {
  override get message() {
    const code = [this.kind, this.sqlstate, this.constraint].filter((part) => part !== undefined).join(" ")
    const fault = explainedFaults[this.sqlstate ?? ""]
    return fault === undefined ? code : `${fault} (${code})`
  }

  /** Whether the message explains the failure without the stack. */
  get isSelfExplanatory() {
    return this.isTransientOrLate || (this.sqlstate !== undefined && this.sqlstate in explainedFaults)
  }

  /** Whether the failure is transient, or the answer was late: by our clock, or by the server's (57014). */
  get isTransientOrLate() {
    return this.isTransient || this.kind === "Deadline" || this.sqlstate === "57014"
  }

  /** Whether the database cannot be reached or written now, but perhaps soon. A deadlock does not count. */
  get isTransient() {
    return transientCodes.test(this.sqlstate ?? "")
  }
}
