import { Console, DateTime, Effect, Option, Redacted } from "effect"
import { Argument, CliError, Command, Flag } from "effect/cli"
import type { Credential } from "../domain/Credential.ts"
import { NotFound } from "../domain/Errors.ts"
import { CredentialId } from "../domain/Identifiers.ts"
import { decodeNewCredential } from "../domain/NewCredential.ts"
import { StoredState } from "../domain/routing/CredentialStatus.ts"
import { UnusedFor, unusedForForm } from "../domain/routing/LastUse.ts"
import { CredentialRepository } from "../port/CredentialRepository.ts"
import { Credentials } from "../port/Credentials.ts"
import { Explanations } from "../port/Explanations.ts"
import { Accounts, NotKnown } from "../service/accounts/Accounts.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { credentialImport } from "./CredentialImport.ts"
import { account, credentialId, flag, name, parse, provider, toggle, workspace } from "./Arguments.ts"
import { print, thenPrint, printPages, refusedAs, StandardStreams } from "./Output.ts"
import { readSecretText } from "../wiring/PrivateFiles.ts"

/** How many credentials to read from the database at a time. */
const pageSize = 1000

const create = Command.make(
  "create",
  { account, workspace: Flag.optional(workspace), provider, name: Flag.optional(name) },
  Effect.fnUntraced(function* ({ account, name, provider, workspace }) {
    const { stdin } = yield* StandardStreams
    if (stdin.isTTY === true) yield* Console.error("Reading the key from standard input, up to Ctrl-D.")
    const key = yield* readSecretText("The key", Option.none(), stdin)
    const body = { provider, name: Option.getOrNull(name), key: Redacted.value(key).replace(/\r?\n$/, "") }
    const created = yield* Effect.gen(function* () {
      yield* (yield* Accounts).requireAccount(account)
      const input = yield* decodeNewCredential(
        Option.isSome(workspace) ? { ...body, workspace_id: workspace.value } : body
      )
      return (yield* (yield* Credentials).create(input)).credential
    }).pipe(
      CommandLayers.asOperator(CommandLayers.sealing, account),
      Effect.catchTag("InvalidParams", refusedAs("Nothing was created"))
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
    unused: flag(
      "unused",
      "Only those that are as old as this many days, such as 90d, and that no attempt used since",
      UnusedFor,
      unusedForForm
    ).pipe(Flag.optional),
    long: toggle("long", "Print every field")
  },
  Effect.fnUntraced(function* ({ account, long, provider, state, unused, workspace }) {
    const filter = {
      workspace_id: Option.getOrUndefined(workspace),
      provider: Option.getOrUndefined(provider),
      state: Option.getOrUndefined(state),
      unused_for: Option.getOrUndefined(unused)
    }
    yield* (yield* Accounts).requireAccount(account, filter.workspace_id)
    const { scan } = yield* CredentialRepository
    yield* printPages(
      "credentials",
      (after?: Credential) => scan(account, { ...filter, after, limit: pageSize }),
      "There is no such credential.",
      long ? undefined : ["id", "provider", "name", "label", "state"]
    )
  }, CommandLayers.asOperator(CommandLayers.withoutKeyring))
).pipe(
  Command.withDescription(
    "List the credentials of an account, by default of all workspaces and providers: id, provider, name, label, state"
  )
)

const show = Command.make("show", { account, id: credentialId }, ({ account, id }) =>
  Effect.gen(function* () {
    const stored = yield* (yield* CredentialRepository).findSealed(account, id)
    if (Option.isNone(stored)) return yield* new NotFound()
    const { credential, key_version, revision, sealed, workspace_deleted } = stored.value
    const fields = { ...credential, revision, key_version, kek_id: sealed.kek_id, workspace_deleted }
    return { ...fields, ...(yield* (yield* Explanations).status(id)) }
  }).pipe(
    CommandLayers.asOperator(CommandLayers.explanations, account),
    Effect.catchTag("NotFound", () => new NotKnown({ kind: "credential" })),
    Effect.flatMap((shown) => print(shown))
  )
).pipe(Command.withDescription("Show a credential, its state and why, and its last use, never the key"))

/** Makes the command `disable` or `enable`. */
const makeSwitch = (name: "disable" | "enable", description: string) =>
  Command.make(name, { account, id: credentialId }, ({ account, id }) =>
    Effect.flatMap(Credentials, ({ update }) => update(id, { disabled: name === "disable" })).pipe(
      CommandLayers.asOperator(CommandLayers.sealing, account),
      Effect.catchTags({ NotFound: () => new NotKnown({ kind: "credential" }), InvalidParams: Effect.die }),
      Effect.map(({ disabled, id }) => ({ id, disabled })),
      thenPrint(() => `the credential is ${name}d`)
    )
  ).pipe(Command.withDescription(description))

const disable = makeSwitch("disable", "Disable a credential: it is no longer offered to a router")

const enable = makeSwitch("enable", "Enable a credential")

const remove = Command.make("delete", { account, id: credentialId }, ({ account, id }) =>
  Effect.flatMap(Credentials, (credentials) => credentials.delete(id)).pipe(
    CommandLayers.asOperator(CommandLayers.withoutKeyring, account),
    Effect.catchTag("NotFound", () => new NotKnown({ kind: "credential" })),
    Effect.andThen(Effect.map(DateTime.now, (deleted_at) => ({ id, deleted_at }))),
    thenPrint(() => "the credential is deleted")
  )
).pipe(Command.withDescription("Delete a credential and its key for good"))

const ids = Argument.String("ID").pipe(
  Argument.withDescription("Ids of all credentials of the workspace and provider, in the order in which to try them"),
  Argument.mapEffect(parse(CredentialId, "ID must be a UUID.")),
  Argument.variadic({ min: 1 }),
  Argument.mapEffect((ids) =>
    new Set(ids).size === ids.length
      ? Effect.succeed(ids)
      : Effect.fail(new CliError.UserError({ cause: "Each ID must be given once." }))
  )
)

const reorder = Command.make("reorder", { account, workspace, provider, ids }, ({ account, workspace, ...order }) =>
  Effect.andThen(
    Effect.flatMap(Accounts, ({ requireAccount }) => requireAccount(account, workspace)),
    Effect.flatMap(Credentials, (credentials) => credentials.order({ workspace_id: workspace, ...order }))
  ).pipe(
    CommandLayers.asOperator(CommandLayers.withoutKeyring, account),
    Effect.catchTag("InvalidParams", refusedAs("The order was not changed")),
    thenPrint(() => "the credentials are in the new order")
  )
).pipe(Command.withDescription("Set the order in which the credentials of a workspace and provider are tried"))

export const credentialCommand = Command.make("credential").pipe(
  Command.withDescription("Credentials of an account"),
  Command.withSubcommands([create, list, show, disable, enable, remove, reorder, credentialImport])
)
