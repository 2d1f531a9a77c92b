import { Command } from "effect/cli"
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
import { serveCommand } from "./ServeCommand.ts"
import { workspaceCommand } from "./WorkspaceCommand.ts"

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
    migrateCommand
  ])
)
