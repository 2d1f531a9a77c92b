import { Console, DateTime, Effect, Option, Redacted } from "effect"
import { Argument, CliError, Command, Flag } from "effect/cli"
import { CredentialId } from "../domain/Identifiers.ts"
import { decodeNewCredential } from "../domain/NewCredential.ts"
import { StoredState } from "../domain/routing/CredentialStatus.ts"
import { Credentials } from "../port/Credentials.ts"
import { Explanations } from "../port/Explanations.ts"
import { NotKnown } from "../service/accounts/Accounts.ts"
import { OperatorCredentials } from "../service/credentials/OperatorCredentials.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { credentialImport } from "./CredentialImport.ts"
import { account, credentialId, flag, name, parse, provider, toggle, workspace } from "./Arguments.ts"
import { CommandFailed, print, printing, printPages, StandardStreams } from "./Output.ts"
import { readSecretText } from "../wiring/PrivateFiles.ts"

const withCredentials = CommandLayers.operatorOn(OperatorCredentials, CommandLayers.unsealed)

const create = Command.make(
  "create",
  { account, workspace: Flag.optional(workspace), provider, name: Flag.optional(name) },
  Effect.fnUntraced(function* ({ account, name, provider, workspace }) {
    const { stdin } = yield* StandardStreams
    if (stdin.isTTY === true) yield* Console.error("Reading the key from standard input, up to Ctrl-D.")
    const key = yield* readSecretText("The key", Option.none(), stdin)
    const body = { provider, name: Option.getOrNull(name), key: Redacted.value(key).replace(/\r?\n$/, "") }
    const created = yield* Effect.gen(function* () {
      yield* (yield* OperatorCredentials).requireAccount(account)
      const input = yield* decodeNewCredential(
        Option.isSome(workspace) ? { ...body, workspace_id: workspace.value } : body
      )
      return (yield* (yield* Credentials).create(input)).credential
    }).pipe(
      CommandLayers.asOperator(CommandLayers.sealing, account),
      Effect.catchTag("InvalidParams", ({ error }) => {
        const issues = error.metadata.issues.map(({ message, path }) => `${path.join(".")} ${message}`)
        return Effect.fail(new CommandFailed({ message: `Nothing was created: ${issues.join("; ")}.` }))
      })
    )
    yield* print({ ...created }, `credential ${created.id} was created`)
  })
).pipe(Command.withDescription("Create a credential with the key on standard input"))

const states = StoredState.literals.join(", ")

const list = Command.make(
  "list",
  {
    account,
    workspace: Flag.optional(workspace),
    provider: Flag.optional(provider),
    state: flag("state", `Only those in this state: ${states}`, StoredState, `be one of ${states}`).pipe(Flag.optional),
    long: toggle("long", "Print every field")
  },
  Effect.fnUntraced(function* ({ account, long, provider, state, workspace }) {
    const filter = {
      workspace_id: Option.getOrUndefined(workspace),
      provider: Option.getOrUndefined(provider),
      state: Option.getOrUndefined(state)
    }
    yield* withCredentials((credentials) =>
      printPages(
        "credentials",
        (write) => credentials.list(account, filter, write),
        "There is no such credential.",
        long ? undefined : ["id", "provider", "name", "label", "state"]
      )
    )
  })
).pipe(
  Command.withDescription(
    "List the credentials of an account, of every workspace and provider unless given: id, provider, name, label, state"
  )
)

const show = Command.make("show", { account, id: credentialId }, ({ account, id }) =>
  Effect.gen(function* () {
    const stored = yield* (yield* OperatorCredentials).show(account, id)
    return { ...stored, ...(yield* (yield* Explanations).status(id)) }
  }).pipe(
    CommandLayers.asOperator(CommandLayers.explanations, account),
    Effect.catchTag("NotFound", () => new NotKnown({ kind: "credential" })),
    Effect.flatMap((shown) => print(shown))
  )
).pipe(Command.withDescription("Show a credential, its state and why, and its last use, never the key"))

/** The command that disables credentials, or the one that enables them. */
const setDisabled = (name: "disable" | "enable", description: string) =>
  Command.make(name, { account, id: credentialId }, ({ account, id }) =>
    Effect.flatMap(Credentials, ({ update }) => update(id, { disabled: name === "disable" })).pipe(
      CommandLayers.asOperator(CommandLayers.sealing, account),
      Effect.catchTags({ NotFound: () => new NotKnown({ kind: "credential" }), InvalidParams: Effect.die }),
      Effect.map(({ disabled, id }) => ({ id, disabled })),
      printing(() => `the credential is ${name}d`)
    )
  ).pipe(Command.withDescription(description))

const disable = setDisabled("disable", "Disable a credential: it is no longer offered to a router")

const enable = setDisabled("enable", "Enable a credential")

const remove = Command.make("delete", { account, id: credentialId }, ({ account, id }) =>
  withCredentials((credentials) => credentials.delete(account, id)).pipe(
    Effect.flatMap((deleted) => Effect.map(DateTime.now, (deleted_at) => ({ ...deleted, deleted_at }))),
    printing(() => "the credential is deleted")
  )
).pipe(Command.withDescription("Delete a credential and its key for good"))

const ids = Argument.String("ID").pipe(
  Argument.withDescription("Ids of all credentials of the workspace and provider, the first to be tried first"),
  Argument.mapEffect(parse(CredentialId, "ID must be a UUID.")),
  Argument.variadic({ min: 1 }),
  Argument.mapEffect((ids) =>
    new Set(ids).size === ids.length
      ? Effect.succeed(ids)
      : Effect.fail(new CliError.UserError({ cause: "Each ID must be given once." }))
  )
)

const reorder = Command.make("reorder", { account, workspace, provider, ids }, ({ account, workspace, ...order }) =>
  withCredentials((credentials) => credentials.reorder(account, { workspace_id: workspace, ...order })).pipe(
    printing(() => "the credentials are in the new order")
  )
).pipe(Command.withDescription("Set the order in which the credentials of a workspace and provider are tried"))

export const credentialCommand = Command.make("credential").pipe(
  Command.withDescription("Credentials of an account"),
  Command.withSubcommands([create, list, show, disable, enable, remove, reorder, credentialImport])
)
