import { Effect } from "effect"
import type { DatabaseSettings } from "../../../src/sql/connection/Database.ts"
import type { DatabaseTarget } from "../../../src/sql/connection/DatabaseTarget.ts"
import { type MigrationMode, openSchema } from "../../../src/sql/schema/Migrations.ts"

/** Brings the schema up to date and returns the names of the migrations that were run. */
export const migrate = (
  target: DatabaseTarget,
  settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">,
  mode: MigrationMode = "migrate"
) => Effect.map(openSchema(target, settings, mode), ({ migrated }) => migrated)
