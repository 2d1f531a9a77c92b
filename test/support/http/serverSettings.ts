import { Duration } from "effect"
import type { ServerSettings } from "../../../src/http/Server.ts"

/** A server on a port of its own, with the limits that it has by default. */
export const serverSettings: ServerSettings = {
  host: "127.0.0.1",
  port: 0,
  reusePort: false,
  maxConnections: 10_000,
  keepAliveTimeout: Duration.seconds(5),
  accessLog: false,
  sendTimeout: Duration.seconds(10)
}
