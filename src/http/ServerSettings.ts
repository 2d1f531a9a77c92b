import type { Duration } from "effect"

/** Where the server listens, and what it grants its clients. */
export interface ServerSettings {
  readonly host: string
  readonly port: number
  /** Further connections are dropped. */
  readonly maxConnections: number
  /** When an idle connection is closed. */
  readonly keepAliveTimeout: Duration.Duration
  /** Whether each request is a line in the log. */
  readonly accessLog: boolean
  /** How long a client may take to read an answer. */
  readonly sendTimeout: Duration.Duration
}
