import { Context, type Effect, type Option } from "effect"
import type { AccountId } from "../domain/AccountId.ts"
import type { Credential } from "../domain/Credential.ts"
import type { CredentialId } from "../domain/CredentialId.ts"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { WorkspaceGone } from "./WorkspaceGone.ts"

/** Stores credentials. Every function is confined to one account. */
export class CredentialRepository extends Context.Service<
  CredentialRepository,
  {
    /** Durable when it succeeds. The workspace is not deleted before the credential is stored. Returns the credential with the `sort_order` that the store assigned (D32). */
    readonly insert: (
      account_id: AccountId,
      credential: Omit<Credential, "sort_order">,
      sealed: SealedKey
    ) => Effect.Effect<Credential, ServiceUnavailable | WorkspaceGone>
    readonly findById: (
      account_id: AccountId,
      id: CredentialId
    ) => Effect.Effect<Option.Option<Credential>, ServiceUnavailable>
    /** Finds disabled credentials too. Over HTTP, only a repeated create calls this. */
    readonly findSealed: (
      account_id: AccountId,
      id: CredentialId
    ) => Effect.Effect<
      Option.Option<{
        readonly credential: Credential
        readonly sealed: SealedKey
        readonly workspace_deleted: boolean
      }>,
      ServiceUnavailable
    >
  }
>()("byok/CredentialRepository") {}
