import type { SqlError } from "effect/sql"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"

const wordOf = (value: unknown, key: string) => {
  const found: unknown = typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined
  return typeof found === "string" && /^[\w.]{1,63}$/.test(found) ? found : undefined
}

/** Connection errors that the driver reports without a code. */
const uncoded: Readonly<Record<string, { readonly kind?: string; readonly sqlstate?: string }>> = {
  "PgConnection: Connection timed out": { sqlstate: "ETIMEDOUT" },
  "PgConnection: Connection closed during startup": { sqlstate: "ECONNRESET" },
  "PgConnection: Connection closed": { sqlstate: "ECONNRESET" },
  // PgBouncer passes on why the server ended a connection, and adds an error of its own.
  "PgConnection: Unexpected ErrorResponse after ErrorResponse": { sqlstate: "08P01" },
  "PgConnection: Server refused TLS": { kind: "TlsDeclined" }
}

/** The one place where a driver's error becomes ours. */
export const failureOf = ({ reason }: SqlError.SqlError): DatabaseFailure =>
  new DatabaseFailure({
    kind: reason._tag,
    sqlstate: wordOf(reason.cause, "code"),
    constraint: wordOf(reason.cause, "constraint"),
    ...uncoded[reason.message]
  })
