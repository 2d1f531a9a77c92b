import { Effect } from "effect"
import { Command } from "effect/cli"
import { migrateDatabase } from "../wiring/Persistence.ts"
import { readSettings } from "../wiring/Settings.ts"
import { toggle } from "./Arguments.ts"
import { printAs } from "./Output.ts"

const finish = toggle("finish", "Also drop what only instances of the version before need, once none of them runs")

const later =
  "Instances of the version before can run beside this one. Once none does, run `byok migrate --finish`, which makes creates cheaper."

export const migrateCommand = Command.make(
  "migrate",
  { finish },
  Effect.fnUntraced(function* ({ finish }) {
    const settings = yield* readSettings
    const { migrated, unfinished } = yield* Effect.scoped(migrateDatabase(settings, finish))
    const done = migrated.length === 0 ? "The database is up to date." : `Migrated: ${migrated.join(", ")}`
    const text = unfinished ? `${done}\n${later}` : done
    yield* printAs({ migrated, unfinished }, text, migrated.length === 0 ? undefined : "the database was migrated")
  })
).pipe(
  Command.withDescription("Bring the database schema up to date; `serve` does this too unless BYOK_MIGRATE is check")
)
