import { Effect, Option } from "effect"
import { InvalidParams } from "../../domain/Errors.ts"
import type { AccountId, ApiKeyHash, WorkspaceId } from "../../domain/Identifiers.ts"
import type { Issue } from "../../domain/Issue.ts"
import type { NewCredential } from "../../domain/NewCredential.ts"
import { ApiKeys } from "../../port/ApiKeys.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import type { PoolFull } from "../../port/CredentialRepository.ts"
import { WorkspaceResolver } from "../../port/AccountRepository.ts"

/** The issue of a request for an unknown workspace, or for the default one after its deletion (D6, D43). */
export const workspaceIssue = (requested: WorkspaceId | undefined): Issue => ({
  path: ["workspace_id"],
  message:
    requested === undefined ? "is required: the default workspace is deleted" : "is not a workspace of this account"
})

/** The issue of a credential that exceeds the limits for its provider in its workspace. */
export const poolIssue = ({ limit, unit }: Pick<PoolFull, "limit" | "unit">): Issue => ({
  path: ["provider"],
  message:
    unit === "credentials"
      ? `must have at most ${limit} credentials in a workspace`
      : `must have at most ${limit} bytes of lists and keys in a workspace`
})

type ApiKeyHashes = ReadonlyArray<ApiKeyHash> | null

/** An issue for each added hash that is no live API key of the account (D24). Accepts hashes already stored. */
export const foreignHashIssues = (
  { ownedBy }: ApiKeys["Service"],
  account_id: AccountId,
  requested: ApiKeyHashes,
  stored: ApiKeyHashes = null
): Answer<ReadonlyArray<Issue>> => {
  const addedHashes = (requested ?? []).filter((hash) => stored?.includes(hash) !== true)
  if (addedHashes.length === 0) return Effect.succeed([])
  return Effect.map(ownedBy(account_id, addedHashes), (owned) =>
    (requested ?? []).flatMap((hash, index): ReadonlyArray<Issue> =>
      owned.has(hash) || !addedHashes.includes(hash)
        ? []
        : [{ path: ["allowed_api_key_hashes", index], message: "is not an API key of this account" }]
    )
  )
}

/** Makes the check that an account owns the workspace and API keys of a create (D6, D24); it returns the workspace. */
export const makeOwnershipCheck = Effect.gen(function* () {
  const apiKeys = yield* ApiKeys
  const workspaces = yield* WorkspaceResolver

  return (account_id: AccountId, input: NewCredential): Answer<WorkspaceId, InvalidParams> =>
    Effect.flatMap(workspaces.resolve(account_id, input.workspace_id), (workspace) =>
      Effect.flatMap(
        foreignHashIssues(apiKeys, account_id, input.allowed_api_key_hashes),
        (foreign): Answer<WorkspaceId, InvalidParams> => {
          if (Option.isNone(workspace))
            return Effect.fail(InvalidParams.of(workspaceIssue(input.workspace_id), ...foreign))
          return foreign.length > 0 ? Effect.fail(InvalidParams.of(...foreign)) : Effect.succeed(workspace.value)
        }
      )
    )
})
