import { Effect, Option } from "effect"
import { InvalidParams } from "../domain/Errors.ts"
import type { AccountId } from "../domain/Identifiers.ts"
import { CredentialRepository } from "../port/CredentialRepository.ts"
import type { ListRequest } from "../port/Credentials.ts"
import { WorkspaceResolver } from "../port/WorkspaceResolver.ts"
import { workspaceIssue } from "./workspaceIssue.ts"

/** Makes the list of the credentials in one workspace, which is found as on create (L4). */
export const makeListing = Effect.gen(function* () {
  const repository = yield* CredentialRepository
  const workspaces = yield* WorkspaceResolver

  return Effect.fnUntraced(function* (account_id: AccountId, { limit, offset, provider, workspace_id }: ListRequest) {
    const workspace = yield* workspaces.resolve(account_id, workspace_id)
    if (Option.isNone(workspace)) return yield* InvalidParams.of(workspaceIssue(workspace_id !== undefined))
    return yield* repository.list(account_id, { workspace_id: workspace.value, provider, offset, limit })
  })
})
