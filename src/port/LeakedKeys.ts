import { Context, type Option } from "effect"
import type { AccountId, CredentialId, CredentialReference, WorkspaceId } from "../domain/Identifiers.ts"
import type { SealedKey, BoundCredential } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Searches the sealed keys of all accounts for a leaked key, and records which keys of an account have leaked. */
export class LeakedKeys extends Context.Service<
  LeakedKeys,
  {
    /** The number of credentials of all accounts, which is how many a whole scan covers. */
    readonly countCredentials: Answer<number>
    /**
     * The next page of suspects. Misses no credential that exists throughout the scan. Suspects have one of `labels`,
     * an inconclusive label, or a provider whose keys hold several secrets; without `labels`, every credential is a
     * suspect.
     */
    readonly scan: (range: {
      readonly after: string | undefined
      readonly labels: ReadonlyArray<string> | undefined
    }) => Answer<SuspectPage>
    /** Records the search and, if `park`, marks the keys as leaked. Returns for each key whether it is marked. */
    readonly conclude: (search: {
      readonly keys: ReadonlyArray<KeyReference>
      readonly searched: number
      readonly park: boolean
    }) => Answer<ReadonlyArray<boolean>>
    /** The account's marked keys that `labels` make suspects, as in `scan`. Calls `labels` only if there are marks. */
    readonly marked: (account_id: AccountId, labels: () => ReadonlyArray<string>) => Answer<ReadonlyArray<Suspect>>
    /** Removes the mark of a credential's current key, if any. None for an unknown credential. */
    readonly clear: (account_id: AccountId, id: CredentialId) => Answer<Option.Option<KeyReference>>
  }
>()("byok/LeakedKeys") {}

/** A credential whose key may have leaked. */
export interface Suspect {
  readonly context: BoundCredential
  readonly sealed: SealedKey
  readonly label: string
  readonly key_version: number
}

export interface SuspectPage {
  readonly suspects: ReadonlyArray<Suspect>
  /** Number of credentials that the page covered, suspects or not. */
  readonly searched: number
  /** Where the next page begins; undefined after the last one. */
  readonly next: string | undefined
}

/** Names a provider key by credential and version. */
export interface KeyReference extends CredentialReference {
  readonly workspace_id: WorkspaceId
  readonly key_version: number
}
