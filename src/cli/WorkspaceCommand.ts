import { Effect } from "effect"
import { Command } from "effect/cli"
import { WorkspaceId } from "../domain/Identifiers.ts"
import { account, argument, confirmation, name } from "./Arguments.ts"
import { print, printList } from "./Output.ts"
import { withAccounts } from "./asOperator.ts"

const create = Command.make(
  "create",
  { account, name },
  Effect.fnUntraced(function* ({ account, name }) {
    const made = yield* withAccounts((accounts) => accounts.createWorkspace(account, name))
    const remove = `byok workspace delete ${made.workspace_id} --yes`
    yield* print(made, `workspace ${made.workspace_id} was created, and \`${remove}\` deletes it`)
  })
).pipe(Command.withDescription("Create a workspace"))

const id = argument("ID", "Id of the workspace", WorkspaceId, "be a UUID")

const makeDefault = Command.make(
  "default",
  { id },
  Effect.fnUntraced(function* ({ id }) {
    const made = yield* withAccounts((accounts) => accounts.makeDefault(id))
    yield* print(made, "the workspace is the default one")
  })
).pipe(Command.withDescription("Make a workspace the default one of its account, in place of another"))

const remove = Command.make(
  "delete",
  { id, yes: confirmation("a deleted workspace cannot be restored, and its credentials serve no request any more") },
  Effect.fnUntraced(function* ({ id }) {
    const deleted = yield* withAccounts((accounts) => accounts.deleteWorkspace(id))
    yield* print(deleted, "the workspace is deleted")
  })
).pipe(Command.withDescription("Delete a workspace; its credentials stay readable but serve no request"))

const list = Command.make(
  "list",
  { account },
  Effect.fnUntraced(function* ({ account }) {
    const workspaces = yield* withAccounts((accounts) => accounts.listWorkspaces(account))
    yield* printList(
      "workspaces",
      workspaces.map((workspace) => ({ ...workspace }))
    )
  })
).pipe(Command.withDescription("List the workspaces of an account"))

export const workspaceCommand = Command.make("workspace").pipe(
  Command.withDescription("Workspaces of an account"),
  Command.withSubcommands([create, makeDefault, remove, list])
)
