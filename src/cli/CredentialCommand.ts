import { DateTime, Effect, Option } from "effect"
import { Argument, CliError, Command, Flag } from "effect/cli"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { CredentialId } from "../domain/Identifiers.ts"
import { Credentials } from "../port/Credentials.ts"
import { NotKnown } from "../service/Accounts.ts"
import { OperatorCredentials } from "../service/OperatorCredentials.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { asOperator, operatorOn } from "./asOperator.ts"
import { credentialImport } from "./CredentialImport.ts"
import { account, credentialId, parse, provider, workspace } from "./Arguments.ts"
import { print, printPages } from "./Output.ts"

const withCredentials = operatorOn(OperatorCredentials, CommandLayers.credentials)

const list = Command.make(
  "list",
  { account, workspace: Flag.optional(workspace), provider: Flag.optional(provider) },
  Effect.fnUntraced(function* ({ account, provider, workspace }) {
    const filter = { workspace_id: Option.getOrUndefined(workspace), provider: Option.getOrUndefined(provider) }
    yield* withCredentials((credentials) =>
      printPages("credentials", (write) =>
        credentials.list(account, filter, (page) => write(page.map((credential) => ({ ...credential }))))
      )
    )
  })
).pipe(Command.withDescription("List the credentials of an account, of every workspace and provider unless given"))

const show = Command.make(
  "show",
  { account, id: credentialId },
  Effect.fnUntraced(function* ({ account, id }) {
    const shown = yield* withCredentials((credentials) => credentials.show(account, id))
    yield* print({ ...shown })
  })
).pipe(
  Command.withDescription("Show a credential, its revision, the version of its key and its last use, never the key")
)

/** The command that disables credentials, or the one that enables them. */
const setDisabled = (name: "disable" | "enable", description: string) =>
  Command.make(
    name,
    { account, id: credentialId },
    Effect.fnUntraced(function* ({ account, id }) {
      const { disabled } = yield* Effect.flatMap(Credentials, ({ update }) =>
        update(id, { disabled: name === "disable" })
      ).pipe(
        Effect.provideService(CurrentCaller, { account_id: account }),
        asOperator(CommandLayers.sealing),
        Effect.catchTags({ NotFound: () => new NotKnown({ kind: "credential" }), InvalidParams: Effect.die })
      )
      yield* print({ id, disabled }, `the credential is ${name}d`)
    })
  ).pipe(Command.withDescription(description))

const disable = setDisabled("disable", "Disable a credential: it is no longer offered to a router")

const enable = setDisabled("enable", "Enable a credential")

const remove = Command.make(
  "delete",
  { account, id: credentialId },
  Effect.fnUntraced(function* ({ account, id }) {
    const deleted = yield* withCredentials((credentials) => credentials.delete(account, id))
    yield* print({ ...deleted, deleted_at: yield* DateTime.now }, "the credential is deleted")
  })
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

const reorder = Command.make(
  "reorder",
  { account, workspace, provider, ids },
  Effect.fnUntraced(function* ({ account, ids, provider, workspace }) {
    const order = { workspace_id: workspace, provider, ids }
    yield* withCredentials((credentials) => credentials.reorder(account, order))
    yield* print({ workspace_id: workspace, provider, ids }, "the credentials are in the new order")
  })
).pipe(Command.withDescription("Set the order in which the credentials of a workspace and provider are tried"))

export const credentialCommand = Command.make("credential").pipe(
  Command.withDescription("Credentials of an account"),
  Command.withSubcommands([list, show, disable, enable, remove, reorder, credentialImport])
)
