import { Effect, Option } from "effect"
import { InvalidParams } from "../domain/Errors.ts"
import type { AccountId } from "../domain/Identifiers.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import { ApiKeys } from "../port/ApiKeys.ts"
import { WorkspaceResolver } from "../port/WorkspaceResolver.ts"
import { foreignHashIssues } from "./foreignHashIssues.ts"
import { workspaceIssue } from "./workspaceIssue.ts"

/** Makes the check that an account owns the workspace and API keys of a create (D6, D24). Returns the workspace. */
export const makeOwnershipCheck = Effect.gen(function* () {
  const apiKeys = yield* ApiKeys
  const workspaces = yield* WorkspaceResolver

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential) {
    const workspace = yield* workspaces.resolve(account_id, input.workspace_id)
    const foreign = yield* foreignHashIssues(apiKeys, account_id, input.allowed_api_key_hashes)
    if (Option.isNone(workspace)) {
      return yield* InvalidParams.of(workspaceIssue(input.workspace_id !== undefined), ...foreign)
    }
    if (foreign.length > 0) return yield* InvalidParams.of(...foreign)
    return workspace.value
  })
})
