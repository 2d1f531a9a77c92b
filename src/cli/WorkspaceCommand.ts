import { Command } from "effect/cli"
import { WorkspaceId } from "../domain/Identifiers.ts"
import type { Workspace } from "../port/AccountRepository.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { account, argument, confirmation, name } from "./Arguments.ts"
import { thenPrint, printPages } from "./Output.ts"

const deleteCommandLine = (workspace_id: string) => `byok workspace delete ${workspace_id} --yes`

const create = Command.make("create", { account, name }, ({ account, name }) =>
  CommandLayers.withAccounts((accounts) => accounts.createWorkspace(account, name)).pipe(
    thenPrint(
      ({ workspace_id }) =>
        `workspace ${workspace_id} was created, and \`${deleteCommandLine(workspace_id)}\` deletes it`
    )
  )
).pipe(Command.withDescription("Create a workspace"))

const id = argument("ID", "Id of the workspace", WorkspaceId, "be a UUID")

const makeDefault = Command.make("default", { id }, ({ id }) =>
  CommandLayers.withAccounts((accounts) => accounts.makeDefault(id)).pipe(
    thenPrint(() => "the workspace is the default one")
  )
).pipe(Command.withDescription("Make a workspace the default one of its account, in place of another"))

const yes = confirmation("a deleted workspace cannot be restored, and its credentials serve no request any more")

const remove = Command.make("delete", { id, yes }, ({ id }) =>
  CommandLayers.withAccounts((accounts) => accounts.deleteWorkspace(id)).pipe(
    thenPrint(() => "the workspace is deleted")
  )
).pipe(Command.withDescription("Delete a workspace; its credentials stay readable but serve no request"))

const list = Command.make("list", { account }, ({ account }) =>
  CommandLayers.withAccounts(({ listWorkspaces }) =>
    printPages("workspaces", (last?: Workspace) => listWorkspaces(account, last?.workspace_id))
  )
).pipe(Command.withDescription("List the workspaces of an account"))

export const workspaceCommand = Command.make("workspace").pipe(
  Command.withDescription("Workspaces of an account"),
  Command.withSubcommands([create, makeDefault, remove, list])
)
