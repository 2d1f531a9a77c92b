import { isIP } from "node:net"
import type { ConnectionOptions } from "node:tls"
import { Data, Redacted } from "effect"

/** The parsed and checked address of the database; drivers never see the URL. */
export interface DatabaseTarget {
  /** A host name, an address, or the absolute path of a Unix socket's directory. */
  readonly host: string
  readonly port: number
  readonly username: string
  readonly database: string
  readonly password: Redacted.Redacted | undefined
  readonly tls: ConnectionOptions | undefined
}

/** The message completes the sentence `DATABASE_URL …` without quoting the URL. */
export class InvalidDatabaseUrl extends Data.TaggedError("InvalidDatabaseUrl")<{ readonly message: string }> {}

const tlsModes = ["require", "verify-ca", "verify-full"]
const unencryptedModes = ["disable", "allow", "prefer"]

/** What to do instead of a parameter that URLs of database services or of libpq have. */
const insteadOf = new Map([
  ["sslrootcert", "set DATABASE_CA_FILE instead"],
  ["connect_timeout", "set DATABASE_CONNECT_TIMEOUT instead"],
  // The driver cannot require a bound channel. byok checks the server's certificate in every TLS mode.
  ["channel_binding", "remove it"],
  ["application_name", "remove it"],
  ["options", "remove it"]
])

const isLocal = (host: string) =>
  host.startsWith("/") || host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host)

const decode = (part: string) => {
  try {
    return decodeURIComponent(part)
  } catch {
    throw new InvalidDatabaseUrl({ message: "contains a percent sign that does not start an encoded character" })
  }
}

/** Node checks a certificate against `servername`, which cannot be an IP address, then `host`, then `localhost`. */
const tlsOptions = (host: string, ca: string | undefined): ConnectionOptions => ({
  host,
  ...(isIP(host) === 0 ? { servername: host } : {}),
  ...(ca === undefined ? {} : { ca })
})

/**
 * Parses `postgres://user:password@host:port/database?sslmode=verify-full`. Requires TLS for other machines. Every TLS
 * mode checks the server's certificate against `ca` or the system's authorities. Throws `InvalidDatabaseUrl`.
 */
export const parseDatabaseUrl = (text: Redacted.Redacted, ca?: string): DatabaseTarget => {
  const refuse = (message: string) => new InvalidDatabaseUrl({ message })
  // Not the URL class: it rejects a percent-encoded path as the host, and its errors contain the whole input.
  const raw = Redacted.value(text)
  const parts =
    /^postgres(?:ql)?:\/\/(?:([^:@/?#\s]*)(?::([^@/?#\s]*))?@)?(\[[0-9a-fA-F:.]+\]|[^:@/?#\s,[\]]*)(?::(\d{1,5}))?(?:\/([^/?#\s]*))?(?:\?([^#\s]*))?$/.exec(
      raw
    )
  if (parts === null) {
    // Tells the likeliest mistake from others: a reserved character in the user or password.
    const [, , userinfo = ""] = /^postgres(ql)?:\/\/(.*)@/s.exec(raw) ?? []
    throw refuse(
      /[@/?#\s]/.test(userinfo)
        ? "must have its user and password percent-encoded: @ as %40, / as %2F, ? as %3F, # as %23"
        : "must look like postgres://user:password@host:port/database?sslmode=verify-full"
    )
  }
  const [, username = "", password, authority = "", port = "5432", database = "", query = ""] = parts
  const parameters = new URLSearchParams(query)
  for (const name of parameters.keys()) {
    if (parameters.getAll(name).length > 1) throw refuse("must not repeat a parameter")
    const instead = insteadOf.get(name)
    if (instead !== undefined) throw refuse(`must not contain ${name}: ${instead}`)
    if (name !== "sslmode" && name !== "host") throw refuse("may contain only the parameters sslmode and host")
  }
  const host = parameters.get("host") ?? (decode(authority).replace(/^\[(.*)\]$/, "$1") || "localhost")
  if (host.includes(",")) throw refuse("must name one host")
  const mode = parameters.get("sslmode") ?? undefined
  if (mode !== undefined && !tlsModes.includes(mode) && !unencryptedModes.includes(mode)) {
    throw refuse(`must have an sslmode of ${tlsModes.join(", ")}, or ${unencryptedModes.join(", ")} on this machine`)
  }
  const encrypted = mode !== undefined && tlsModes.includes(mode)
  if (!encrypted && !isLocal(host)) {
    throw refuse("points to another machine without TLS: add sslmode=verify-full")
  }
  if (encrypted && host.startsWith("/")) throw refuse("must not ask for TLS on a Unix socket")
  if (username === "") throw refuse("must name a user")
  if (Number(port) < 1 || Number(port) > 65535) throw refuse("must have a port from 1 to 65535")
  return {
    host,
    port: Number(port),
    username: decode(username),
    database: decode(database) || decode(username),
    password: password === undefined ? undefined : Redacted.make(decode(password)),
    tls: encrypted ? tlsOptions(host, ca) : undefined
  }
}
