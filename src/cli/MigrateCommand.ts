import { Effect } from "effect"
import { Command } from "effect/cli"
import { migrateDatabase } from "../wiring/Persistence.ts"
import { readSettings } from "../wiring/Settings.ts"
import { toggle } from "./Arguments.ts"
import { printAs } from "./Output.ts"

const distribute = toggle(
  "distribute",
  "Also spread the accounts over the nodes of a Citus cluster, while no instance runs; see docs/scaling.md"
)

export const migrateCommand = Command.make("migrate", { distribute }, (flags) =>
  Effect.gen(function* () {
    const settings = yield* readSettings
    const { distributed, migrated, restored } = yield* Effect.scoped(migrateDatabase(settings, flags))
    const done = [
      migrated.length === 0 ? "The database is up to date." : `Migrated: ${migrated.join(", ")}`,
      ...(restored.length === 0 ? [] : [`Restored the foreign keys ${restored.join(", ")}`])
    ].join("\n")
    const spread =
      distributed.length === 0 ? "All tables were distributed before." : `Distributed: ${distributed.join(", ")}`
    const text = flags.distribute ? `${done}\n${spread}` : done
    const result = { migrated, restored, ...(flags.distribute ? { distributed } : {}) }
    const changed = migrated.length + restored.length + distributed.length > 0
    yield* printAs(result, text, changed ? "the database was migrated" : undefined)
  })
).pipe(
  Command.withDescription("Bring the database schema up to date; `serve` does this too unless BYOK_MIGRATE is check")
)
