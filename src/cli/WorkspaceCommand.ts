import { Effect } from "effect"
import { Command } from "effect/cli"
import { WorkspaceId } from "../domain/Identifiers.ts"
import { account, argument, name } from "./Arguments.ts"
import { print, printList } from "./Output.ts"
import { withAccounts } from "./asOperator.ts"

const create = Command.make(
  "create",
  { account, name },
  Effect.fnUntraced(function* ({ account, name }) {
    const made = yield* withAccounts((accounts) => accounts.createWorkspace(account, name))
    const remove = `byok workspace delete ${made.workspace_id}`
    yield* print(made, `workspace ${made.workspace_id} was created, and \`${remove}\` deletes it`)
  })
).pipe(Command.withDescription("Create a workspace"))

const remove = Command.make(
  "delete",
  {
    id: argument("ID", "Id of the workspace", WorkspaceId, "be a UUID")
  },
  Effect.fnUntraced(function* ({ id }) {
    const deleted = yield* withAccounts((accounts) => accounts.deleteWorkspace(id))
    yield* print(deleted, "the workspace is deleted")
  })
).pipe(Command.withDescription("Delete a workspace; its credentials stay readable"))

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
  Command.withSubcommands([create, remove, list])
)
