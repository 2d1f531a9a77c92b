import { Context } from "effect"
import type { AccountId, CredentialId, CredentialReference } from "../domain/Identifiers.ts"
import type { LastUse } from "../domain/routing/LastUse.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Stores when routers last used credentials. For display only: losing a use changes no decision. */
export class CredentialUse extends Context.Service<
  CredentialUse,
  {
    /**
     * Stores times that are later than the stored ones, so reports may repeat, but none after the database's present.
     * Skips deleted credentials, and those that another transaction has locked, whose uses it returns.
     */
    readonly store: (uses: ReadonlyArray<UsedCredential>) => Answer<ReadonlyArray<UsedCredential>>
    readonly find: (
      account_id: AccountId,
      ids: ReadonlyArray<CredentialId>
    ) => Answer<ReadonlyMap<CredentialId, LastUse>>
  }
>()("byok/CredentialUse") {}

export interface UsedCredential extends LastUse, CredentialReference {}
