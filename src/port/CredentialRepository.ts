import { Context, type Effect, type Option } from "effect"
import type { AccountId } from "../domain/AccountId.ts"
import type { Credential } from "../domain/Credential.ts"
import type { CredentialId } from "../domain/CredentialId.ts"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { SealedKey } from "../domain/SealedKey.ts"

/** Stores credentials; every function sees those of one account only. */
export class CredentialRepository extends Context.Service<
  CredentialRepository,
  {
    /** Durable when it succeeds. Answers with the credential and its `sort_order`, which the store decides (D32). */
    readonly insert: (
      account_id: AccountId,
      credential: Omit<Credential, "sort_order">,
      sealed: SealedKey
    ) => Effect.Effect<Credential, ServiceUnavailable>
    readonly findById: (
      account_id: AccountId,
      id: CredentialId
    ) => Effect.Effect<Option.Option<Credential>, ServiceUnavailable>
    /** A disabled one as well. Of HTTP, only a create that is repeated reaches it. */
    readonly findSealed: (
      account_id: AccountId,
      id: CredentialId
    ) => Effect.Effect<
      Option.Option<{ readonly credential: Credential; readonly sealed: SealedKey }>,
      ServiceUnavailable
    >
  }
>()("byok/CredentialRepository") {}
