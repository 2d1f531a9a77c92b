import type { SqlError } from "effect/sql"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"

/** Reads a member of a driver's error, if its text is one word: longer texts may quote stored values. */
const wordOf = (value: unknown, key: string) => {
  const word: unknown = typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined
  return typeof word === "string" && /^[\w.]{1,63}$/.test(word) ? word : undefined
}

/** Kind or code, an SQLSTATE or a system error, of connection errors that the driver reports without one. */
const codesByMessage: Readonly<Record<string, { readonly kind?: string; readonly sqlstate?: string }>> = {
  "PgConnection: Connection timed out": { sqlstate: "ETIMEDOUT" },
  "PgConnection: Connection closed during startup": { sqlstate: "ECONNRESET" },
  "PgConnection: Connection closed": { sqlstate: "ECONNRESET" },
  // PgBouncer forwards the server's error when a connection ends, and adds another one.
  "PgConnection: Unexpected ErrorResponse after ErrorResponse": { sqlstate: "08P01" },
  "PgConnection: Server refused TLS": { kind: "TlsDeclined" }
}

/** Reduces a driver's error to members that quote no stored value. */
export const failureOf = ({ reason }: SqlError.SqlError): DatabaseFailure =>
  new DatabaseFailure({
    kind: reason._tag,
    sqlstate: wordOf(reason.cause, "code"),
    constraint: wordOf(reason.cause, "constraint"),
    ...codesByMessage[reason.message]
  })

const caHint = "; set DATABASE_CA_FILE to trust other authorities"

const poolerHint = " Behind a transaction pooler such as PgBouncer, set DATABASE_POOLER=true."

/**
 * Faults after which nothing is retried, because somebody must act. Each pattern matches the kind and code of a
 * failure, with a space between.
 */
const needingAction: ReadonlyArray<readonly [failure: RegExp, fault: string, hint?: string]> = [
  [/^AuthenticationError\b/, "the user or password was rejected"],
  [/ 3D000$/, "the database does not exist"],
  [/ 42501$/, "the user lacks a permission", "; run `byok migrate` as the owner of the database"],
  [/ 55P03$/, "its schema is locked, for example by a backup or another migration", "; try again when that has ended"],
  [/^TlsDeclined\b/, "the database does not speak TLS", "; leave sslmode out of the URL for one on this machine"],
  [/ ERR_TLS_CERT_ALTNAME_INVALID$/, "its certificate is for another host"],
  [/ (\w*SELF_SIGNED_CERT\w*|UNABLE_TO_\w+|CERT_UNTRUSTED|INVALID_CA)$/, "its certificate is not trusted", caHint],
  [/ CERT_\w+$/, "its certificate is not valid"]
]

/** Says why the database cannot be used after `seconds` of trying. `subject` names it without its host. */
export const explainFailure = (subject: string, failure: DatabaseFailure, seconds: number): string => {
  const { kind, message, sqlstate } = failure
  const code = sqlstate === undefined ? "" : ` (${sqlstate})`
  if (sqlstate === "25006") return `${subject} leads to a read-only server (25006); gave up after ${seconds} seconds.`
  if (sqlstate === "ENOTFOUND") return `${subject}: its host is not known${code}.`
  if (failure.isTransient) {
    const tried = seconds === 0 ? "" : `; gave up after ${seconds} seconds`
    return `${subject} cannot be reached${code}${tried}.${sqlstate === "08P01" ? poolerHint : ""}`
  }
  const [, fault, hint = ""] = needingAction.find(([pattern]) => pattern.test(`${kind} ${sqlstate}`)) ?? []
  return fault === undefined ? `${subject} cannot be used: ${message}.` : `${subject}: ${fault}${code}${hint}.`
}
