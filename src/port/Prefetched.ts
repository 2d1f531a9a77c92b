import { Context, type Option } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"

/**
 * What the lookup of the caller's API key has read along with it, for one request. Adapters on the same database answer
 * from it instead of asking again; others ignore it, and calls without it ask as ever.
 */
export interface Prefetched {
  readonly account_id: AccountId
  /** The account's default workspace, null if it is deleted; undefined if it was not read. */
  readonly default_workspace_id?: WorkspaceId | null
  /** The credential that the request asks for, none if the account has no such one. */
  readonly credential?: { readonly id: CredentialId; readonly found: Option.Option<Credential> }
}

export const Prefetched = Context.Reference<Prefetched | undefined>("byok/Prefetched", {
  defaultValue: () => undefined
})
