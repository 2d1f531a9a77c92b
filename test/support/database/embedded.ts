import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Redacted } from "effect"
import type { Endpoint } from "../../../src/sql/embedded/EmbeddedPostgres.ts"

/** The endpoint of the embedded database of a data directory, which a service runs. */
export const endpointIn = (directory: string): Endpoint => ({
  host: join(directory, "postgres"),
  username: "byok",
  database: "postgres",
  password: Redacted.make(readFileSync(join(directory, "postgres.password"), "utf8").trim())
})

/** The URL of an embedded database. */
export const urlOf = ({ database, host, password, username }: Endpoint): string =>
  `postgres://${username}:${encodeURIComponent(Redacted.value(password))}@localhost/${database}?host=${encodeURIComponent(host)}`
