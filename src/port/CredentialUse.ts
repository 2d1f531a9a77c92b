import { Context, type Effect, type Option } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { LastUse } from "../domain/routing/LastUse.ts"

/** The last use of a credential. */
export interface UsedCredential extends LastUse {
  readonly account_id: AccountId
  readonly credential_id: CredentialId
}

/** When routers last used credentials. It decides nothing: a use that is not stored is a use that nobody reads of. */
export class CredentialUse extends Context.Service<
  CredentialUse,
  {
    /**
     * Stores the later of each time and the one that is stored, so those of several routers may come in any order and
     * twice. Passes over credentials that are gone.
     */
    readonly store: (uses: ReadonlyArray<UsedCredential>) => Effect.Effect<void, ServiceUnavailable>
    /** None if no use of the credential was stored. */
    readonly find: (
      account_id: AccountId,
      credential_id: CredentialId
    ) => Effect.Effect<Option.Option<LastUse>, ServiceUnavailable>
  }
>()("byok/CredentialUse") {}
