import { Effect } from "effect"
import { Command } from "effect/cli"
import { migrateDatabase } from "../wiring/Persistence.ts"
import { readSettings } from "../wiring/Settings.ts"
import { printAs } from "./print.ts"

export const migrateCommand = Command.make(
  "migrate",
  {},
  Effect.fnUntraced(function* () {
    const { migrated } = yield* Effect.scoped(Effect.flatMap(readSettings, migrateDatabase))
    if (migrated.length === 0) return yield* printAs({ migrated }, "The database is up to date.")
    yield* printAs({ migrated }, `Migrated: ${migrated.join(", ")}`, "the database was migrated")
  })
).pipe(
  Command.withDescription("Bring the database schema up to date; `serve` does this too unless BYOK_MIGRATE is check")
)
