import { DateTime, Effect, Option } from "effect"
import { SecureRandom } from "effect/crypto"
import type { AccountId } from "../domain/AccountId.ts"
import type { Credential } from "../domain/Credential.ts"
import { CredentialId } from "../domain/CredentialId.ts"
import { InvalidParams } from "../domain/Errors.ts"
import { readKeyMaterial } from "../domain/KeyMaterial.ts"
import { labelOf } from "../domain/Label.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import { ApiKeys } from "../port/ApiKeys.ts"
import { Cipher } from "../port/Cipher.ts"
import { WorkspaceResolver } from "../port/WorkspaceResolver.ts"
import { foreignHashIssues } from "./foreignHashIssues.ts"
import { withKeyStoreTimeout } from "./withKeyStoreTimeout.ts"
import { workspaceIssue } from "./workspaceIssue.ts"

/**
 * Makes the first half of every create: checks that the account owns the workspace and API keys of the request (D6,
 * D24), completes the credential and seals its key. Stores nothing.
 */
export const makePreparation = Effect.gen(function* () {
  const apiKeys = yield* ApiKeys
  const cipher = yield* Cipher
  const random = yield* SecureRandom.SecureRandom
  const workspaces = yield* WorkspaceResolver

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential) {
    const workspace = yield* workspaces.resolve(account_id, input.workspace_id)
    const foreign = yield* foreignHashIssues(apiKeys, account_id, input.allowed_api_key_hashes)
    if (Option.isNone(workspace)) {
      return yield* InvalidParams.of(workspaceIssue(input.workspace_id !== undefined), ...foreign)
    }
    if (foreign.length > 0) return yield* InvalidParams.of(...foreign)

    const { key, ...fields } = input
    const material = Option.getOrThrow(readKeyMaterial(input.provider, key))
    const credential: Omit<Credential, "sort_order"> = {
      ...fields,
      id: CredentialId.make(yield* random.uuidV7()),
      workspace_id: workspace.value,
      label: labelOf(material.secret),
      created_at: yield* DateTime.now,
      declared_region: input.declared_region ?? material.region
    }
    const sealed = yield* Effect.catchTag(
      withKeyStoreTimeout(cipher.seal(key, { ...credential, account_id })),
      "KeyStoreUnavailable",
      Effect.die
    )
    return { credential, sealed }
  })
})
