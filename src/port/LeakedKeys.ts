import { Context, type Option } from "effect"
import type { AccountId, CredentialId, OwnedCredential, WorkspaceId } from "../domain/Identifiers.ts"
import type { SealedKey, BoundCredential } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** A credential whose key may be the leaked one. */
export interface Suspect {
  readonly context: BoundCredential
  readonly sealed: SealedKey
  readonly label: string
  readonly key_version: number
}

export interface SuspectPage {
  readonly suspects: ReadonlyArray<Suspect>
  /** How many credentials the page covered, suspects or not. */
  readonly searched: number
  /** Where the next page begins; undefined after the last one. */
  readonly next: string | undefined
}

/** A provider key that a search found, by credential and version. */
export interface FoundKey extends OwnedCredential {
  readonly workspace_id: WorkspaceId
  readonly key_version: number
}

/** The sealed keys of all accounts, for the search for a leaked key, and those of one account that are marked as leaked. */
export class LeakedKeys extends Context.Service<
  LeakedKeys,
  {
    readonly count: Answer<number>
    /** The next page; what exists all the while is not missed. Suspects have one of the labels, or hide theirs. */
    readonly scan: (range: {
      readonly after: string | undefined
      readonly labels: ReadonlyArray<string> | undefined
    }) => Answer<SuspectPage>
    /** Records the search, marks the keys as leaked with `park`, and returns for each key whether it is marked now. */
    readonly conclude: (search: {
      readonly found: ReadonlyArray<FoundKey>
      readonly searched: number
      readonly park: boolean
    }) => Answer<ReadonlyArray<boolean>>
    /** The keys of the account that are marked, with one of the labels or an inconclusive one. Most accounts have no marks. */
    readonly marked: (account_id: AccountId, labels: () => ReadonlyArray<string>) => Answer<ReadonlyArray<Suspect>>
    /** Ends the mark that the current key of a credential has leaked, if it has one. None if the account has no such credential. */
    readonly clear: (account_id: AccountId, id: CredentialId) => Answer<Option.Option<FoundKey>>
  }
>()("byok/LeakedKeys") {}
