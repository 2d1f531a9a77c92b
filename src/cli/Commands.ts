import { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { serve } from "../serve/serve.ts"
import { readSettings } from "../wiring/Settings.ts"
import { accountCommand } from "./AccountCommand.ts"
import { apiKeyCommand } from "./ApiKeyCommand.ts"
import { auditCommand } from "./AuditCommand.ts"
import { credentialCommand } from "./CredentialCommand.ts"
import { explainCommand } from "./ExplainCommand.ts"
import { keyringCommand } from "./KeyringCommand.ts"
import { leakCommand } from "./LeakCommand.ts"
import { linkCommand } from "./LinkCommand.ts"
import { root, toggle } from "./Arguments.ts"
import { verifyCommand } from "./VerifyCommand.ts"
import { webhookCommand } from "./WebhookCommand.ts"
import { workspaceCommand } from "./WorkspaceCommand.ts"
import { migrateDatabase } from "../wiring/Persistence.ts"
import { printJsonOr } from "./Output.ts"

const distribute = toggle(
  "distribute",
  "Also spread the accounts over the nodes of a Citus cluster, while no instance runs; see docs/scaling.md"
)

const migrateCommand = Command.make("migrate", { distribute }, (flags) =>
  Effect.gen(function* () {
    const settings = yield* readSettings
    const { distributed, migrated, restored } = yield* Effect.scoped(migrateDatabase(settings, flags))
    const summary = [
      migrated.length === 0 ? "The database is up to date." : `Migrated: ${migrated.join(", ")}`,
      ...(restored.length === 0 ? [] : [`Restored the foreign keys ${restored.join(", ")}`])
    ].join("\n")
    const distribution =
      distributed.length === 0 ? "All tables were distributed before." : `Distributed: ${distributed.join(", ")}`
    const text = flags.distribute ? `${summary}\n${distribution}` : summary
    const result = { migrated, restored, ...(flags.distribute ? { distributed } : {}) }
    const changed = migrated.length + restored.length + distributed.length > 0
    yield* printJsonOr(result, text, changed ? "the database was migrated" : undefined)
  })
).pipe(
  Command.withDescription("Bring the database schema up to date; `serve` does this too unless BYOK_MIGRATE is check")
)

const serveCommand = Command.make("serve", {}, () =>
  Effect.flatMap(Effect.all([root, readSettings]), ([{ json }, settings]) => Layer.launch(serve(settings, json)))
).pipe(Command.withDescription("Serve HTTP until stopped; SIGHUP reloads the keyring and the certificate"))

export const byok = root.pipe(
  Command.withSubcommands([
    serveCommand,
    accountCommand,
    workspaceCommand,
    apiKeyCommand,
    credentialCommand,
    linkCommand,
    keyringCommand,
    leakCommand,
    explainCommand,
    verifyCommand,
    auditCommand,
    webhookCommand,
    migrateCommand
  ])
)
