import { Context, type Effect, type Option } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { LastUse } from "../domain/routing/LastUse.ts"

/** The last use of a credential. */
export interface UsedCredential extends LastUse {
  readonly account_id: AccountId
  readonly credential_id: CredentialId
}

/** When routers last used credentials. For display only: losing a use changes no decision. */
export class CredentialUse extends Context.Service<
  CredentialUse,
  {
    /**
     * Stores each time that is later than the stored one, so several routers may report in any order and more than once.
     * Skips credentials that no longer exist.
     */
    readonly store: (uses: ReadonlyArray<UsedCredential>) => Effect.Effect<void, ServiceUnavailable>
    /** None if no use of the credential was stored. */
    readonly find: (
      account_id: AccountId,
      credential_id: CredentialId
    ) => Effect.Effect<Option.Option<LastUse>, ServiceUnavailable>
  }
>()("byok/CredentialUse") {}
