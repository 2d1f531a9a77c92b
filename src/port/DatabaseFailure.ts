import { Data, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** What a store returns. Fails if its queue is full (D14), and dies with a `DatabaseFailure` if its database fails. */
export type Answer<A, E = never, R = never> = Effect.Effect<A, E | ServiceUnavailable, R>

/** Codes of a PostgreSQL that is down, starting, stopping or read-only, a full pooler, or a host that does not resolve yet. */
const transientCodes =
  /^(ECONNREFUSED|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|ENOENT|ENOTFOUND|EAI_AGAIN|08...|57P0[123]|25006)$/

/** Explanations of faults that need no stack, by SQLSTATE. */
const explainedFaults: Readonly<Record<string, string>> = {
  "25P02": "an earlier statement of the transaction failed",
  "42501": "the user lacks a permission",
  "53100": "the disk of the database is full",
  "53300": "the database takes no more connections"
}

/** The defect of a failed database, without its messages, which quote values. `sqlstate` may also be a code such as ENOENT. */
export class DatabaseFailure extends Data.TaggedError("DatabaseFailure")<{
  /** A reason of Effect's SQL errors, `Deadline`, `UnknownOutcome` or `TlsDeclined`. */
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
    return this.isAway || (this.sqlstate !== undefined && this.sqlstate in explainedFaults)
  }

  /** Whether the failure is transient, or the answer was late by our clock or by the server's (57014). */
  get isAway() {
    return this.isTransient || this.kind === "Deadline" || this.sqlstate === "57014"
  }

  /** Whether the database cannot be reached or written now, but perhaps soon. A deadlock is not transient in this sense. */
  get isTransient() {
    return transientCodes.test(this.sqlstate ?? "")
  }
}
