import { join } from "node:path"
import { PgClient } from "@effect/sql-pg"
import { Effect } from "effect"
import { Reactivity } from "effect/reactivity"

/** A client of the embedded database of a data directory, beside the service that runs it. */
export const embeddedClient = ({ BYOK_DATA_DIR }: { readonly BYOK_DATA_DIR: string }) =>
  Effect.provide(
    PgClient.make({ host: join(BYOK_DATA_DIR, "socket"), username: "byok", database: "postgres" }),
    Reactivity.layer
  )
