import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { WorkspaceId } from "../domain/WorkspaceId.ts"
import { administer } from "./administer.ts"
import { account, name, parse, parseAccount, parseName } from "./parse.ts"
import { print, printList } from "./print.ts"

const create = Command.make(
  "create",
  { account, name },
  Effect.fnUntraced(function* (given) {
    const account_id = yield* parseAccount(given.account)
    const workspaceName = yield* parseName(given.name)
    yield* print(yield* administer((accounts) => accounts.createWorkspace(account_id, workspaceName)))
  })
).pipe(Command.withDescription("Create a workspace"))

const remove = Command.make(
  "delete",
  { id: Argument.String("ID").pipe(Argument.withDescription("Id of the workspace")) },
  Effect.fnUntraced(function* ({ id }) {
    const workspace_id = yield* parse(WorkspaceId, id, "ID must be a UUID.")
    yield* print(yield* administer((accounts) => accounts.deleteWorkspace(workspace_id)))
  })
).pipe(Command.withDescription("Delete a workspace; its credentials stay readable"))

const list = Command.make(
  "list",
  { account },
  Effect.fnUntraced(function* (given) {
    const account_id = yield* parseAccount(given.account)
    const workspaces = yield* administer((accounts) => accounts.listWorkspaces(account_id))
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
