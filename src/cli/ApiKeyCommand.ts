import { Effect, Option } from "effect"
import { CliError, Command, Flag } from "effect/cli"
import { ApiKeyHash } from "../domain/Identifiers.ts"
import { ApiKeyRole } from "../domain/Principal.ts"
import type { ApiKeyRecord } from "../port/AccountRepository.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { account, argument, flag, name, toggle } from "./Arguments.ts"
import { thenPrint, printPages } from "./Output.ts"

const storedHash = argument(
  "HASH",
  "SHA-256 of the key, as shown by `api-key list`",
  ApiKeyHash,
  "be the key's hash, 64 lowercase hexadecimal characters: `byok api-key list` shows it"
)

const importedHash = argument(
  "HASH",
  "SHA-256 of the whole key as UTF-8",
  ApiKeyHash,
  'be the SHA-256 of the key, 64 lowercase hexadecimal characters: `printf %s "$KEY" | sha256sum` shows it'
)

/** The flags for the role of the key; `--management` is short for `--role management`. */
const roleFlags = {
  management: toggle("management", "Allow the key to manage credentials: --role management"),
  role: flag(
    "role",
    "management: may manage credentials; viewer: may read; ordinary (the default): may use gateways",
    ApiKeyRole,
    "be management, viewer or ordinary"
  ).pipe(Flag.optional)
}

interface RoleFlags {
  readonly management: boolean
  readonly role: Option.Option<ApiKeyRole>
}

/** Returns the role that the flags name; fails if they contradict each other. */
const roleOf = ({ management, role: roleFlag }: RoleFlags) => {
  const role = Option.getOrElse(roleFlag, () => (management ? "management" : "ordinary"))
  return management && role !== "management"
    ? Effect.fail(new CliError.UserError({ cause: `--management contradicts --role ${role}.` }))
    : Effect.succeed(role)
}

const issue = Command.make("issue", { account, name, ...roleFlags }, ({ account, name, ...flags }) =>
  Effect.flatMap(roleOf(flags), (role) =>
    CommandLayers.withAccounts((accounts) => accounts.issueApiKey(account, { name, role }))
  ).pipe(thenPrint(({ hash }) => `a key was issued, and \`byok api-key revoke ${hash}\` revokes it`))
).pipe(Command.withDescription("Issue an API key, shown once"))

const importKey = Command.make(
  "import",
  { hash: importedHash, account, name, ...roleFlags },
  ({ account, hash, name, ...flags }) =>
    Effect.flatMap(roleOf(flags), (role) =>
      CommandLayers.withAccounts((accounts) => accounts.importApiKey(account, { hash, name, role }))
    ).pipe(thenPrint(({ hash }) => `the key was imported, and \`byok api-key revoke ${hash}\` revokes it`))
).pipe(Command.withDescription("Import an API key of any form by its hash"))

const revoke = Command.make("revoke", { hash: storedHash }, ({ hash }) =>
  CommandLayers.withAccounts((accounts) => accounts.revokeApiKey(hash)).pipe(thenPrint(() => "the key is revoked"))
).pipe(Command.withDescription("Revoke an API key; its next request is refused"))

const list = Command.make("list", { account }, ({ account }) =>
  CommandLayers.withAccounts(({ listApiKeys }) =>
    printPages("api_keys", (last?: ApiKeyRecord) => listApiKeys(account, last?.hash))
  )
).pipe(Command.withDescription("List the API keys of an account by hash"))

export const apiKeyCommand = Command.make("api-key").pipe(
  Command.withDescription("API keys of an account"),
  Command.withSubcommands([issue, importKey, revoke, list])
)
