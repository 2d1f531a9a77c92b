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
import { migrateCommand } from "./MigrateCommand.ts"
import { root } from "./Arguments.ts"
import { webhookCommand } from "./WebhookCommand.ts"
import { workspaceCommand } from "./WorkspaceCommand.ts"

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
    auditCommand,
    webhookCommand,
    migrateCommand
  ])
)
