import { Data, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** What a store returns. Fails under overload (D14), or if the database fails. */
export type Answer<A, E = never, R = never> = Effect.Effect<A, E | ServiceUnavailable | DatabaseFailure, R>

/** Codes of a PostgreSQL that is down, starting, stopping or read-only, a full pooler, or an unresolved host. */
const transientCodes =
  /^(ECONNREFUSED|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|ENOENT|ENOTFOUND|EAI_AGAIN|08...|57P0[123]|25006)$/

/**
 * Codes of a database that cannot answer now, but may answer the same request later: a broken connection (08), a
 * conflict with another transaction or, on a standby, with recovery (40), no disk, memory or connections left (53), a
 * canceled statement or a server that stops (57), an I/O error of the server (58), a server or object in another state
 * (55000, 55006), a lock that is taken (55P03), a read-only server (25006), a transaction that took too long (25P03,
 * 25P04). Not among them are codes after which somebody must act on byok or its role, such as 28, 42 and XX.
 */
const unavailableCodes = /^(08...|40...|53...|57...|58...|55000|55006|55P03|25006|25P0[34])$/

/** Codes of failures to connect: the server cannot be reached, starts or stops, or takes no more connections. */
const connectingCodes =
  /^(ECONNREFUSED|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|ENOENT|ENOTFOUND|EAI_AGAIN|57P03|53300)$/

/** Explanations of faults that need no stack, by SQLSTATE. */
const explainedFaults: Readonly<Record<string, string>> = {
  "25P02": "an earlier statement of the transaction failed",
  "42501": "the user lacks a permission",
  "53100": "the disk of the database is full",
  "53300": "the database takes no more connections"
}

/** The failure of a database, without its messages, which quote values. `sqlstate` may be ENOENT or the like. */
export class DatabaseFailure extends Data.TaggedError("DatabaseFailure")<{
  /** The tag of an error or reason of Effect, or a kind of our own such as `Deadline` or `UnknownOutcome`. */
  readonly kind: string
  readonly sqlstate: string | undefined
  readonly constraint: string | undefined
  /** True if no attempt at the statement got a connection, so that nothing was done. */
  readonly isUnsent?: boolean
}> {
  override get message() {
    const code = [this.kind, this.sqlstate, this.constraint].filter((part) => part !== undefined).join(" ")
    const fault = explainedFaults[this.sqlstate ?? ""]
    return fault === undefined ? code : `${fault} (${code})`
  }

  /** Whether the message explains the failure without the stack. */
  get isSelfExplanatory() {
    return this.isUnavailable || (this.sqlstate !== undefined && this.sqlstate in explainedFaults)
  }

  /** Whether the database cannot answer now, or did not in time. The cause is then neither the request nor byok. */
  get isUnavailable() {
    return (
      this.isTransient ||
      this.kind === "Deadline" ||
      this.kind === "ConnectionError" ||
      unavailableCodes.test(this.sqlstate ?? "")
    )
  }

  /** Whether the server was not reached, or refused the connection. */
  get isOfConnecting() {
    return connectingCodes.test(this.sqlstate ?? "")
  }

  /** Whether a stored value is at fault: PostgreSQL refused it (22) or a constraint did (23). */
  get isFaultOfValue() {
    return /^2[23]...$/.test(this.sqlstate ?? "")
  }

  /** Whether a statement is worth repeating at once: the database cannot be reached or written for a moment. */
  get isTransient() {
    return transientCodes.test(this.sqlstate ?? "")
  }
}
