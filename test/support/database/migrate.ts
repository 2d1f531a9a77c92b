import { Effect } from "effect"
import type { DatabaseSettings } from "../../../src/sql/connection/Database.ts"
import type { DatabaseTarget } from "../../../src/sql/connection/DatabaseTarget.ts"
import { type MigrationMode, openSchema } from "../../../src/sql/schema/Migrations.ts"

/** Runs the missing migrations and returns their names. */
export const migrate = (
  target: DatabaseTarget,
  settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">,
  mode: MigrationMode = "migrate"
) => Effect.map(openSchema(target, settings, mode), ({ migrated }) => migrated)
