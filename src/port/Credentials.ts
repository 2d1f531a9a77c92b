import { Context, Data } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { CredentialChanges } from "../domain/CredentialChanges.ts"
import type { Conflict, InvalidParams, NotFound } from "../domain/Errors.ts"
import type { CredentialId, IdempotencyKey, WorkspaceId } from "../domain/Identifiers.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import type { CurrentPrincipal } from "../domain/Principal.ts"
import type { Provider } from "../domain/Provider.ts"
import type { OpenFailure } from "./Cipher.ts"
import type { CredentialOrder, CredentialPage, OrderMismatch } from "./CredentialRepository.ts"
import type { Answer } from "./DatabaseFailure.ts"

/**
 * The operations on credentials that tenants, gateways and owners of keys call, on behalf of the `CurrentPrincipal`.
 * @effect-expect-leaking CurrentPrincipal
 */
export class Credentials extends Context.Service<
  Credentials,
  {
    /**
     * Seals the key and stores the credential (section 4.1). Repeating a request with its idempotency key returns the
     * same credential, as `replayed`; a different request with that key fails with `Conflict`.
     */
    readonly create: (
      input: NewCredential,
      idempotency_key?: IdempotencyKey
    ) => Answer<
      { readonly credential: Credential; readonly replayed: boolean },
      InvalidParams | Conflict,
      CurrentPrincipal
    >
    /** Fails with `NotFound` for an unknown credential and for another account's alike (section 4.2, D5). */
    readonly get: (id: CredentialId) => Answer<Credential, NotFound, CurrentPrincipal>
    /** A page in order of creation; all but the last are full. Refuses workspaces that create would refuse. */
    readonly list: (
      request: ListRequest
    ) => Answer<
      { readonly credentials: ReadonlyArray<Credential>; readonly total_count: number },
      InvalidParams,
      CurrentPrincipal
    >
    /**
     * Changes members under the rules of create. Stores nothing if nothing differs. Concurrent updates of different
     * members all take effect.
     */
    readonly update: (
      id: CredentialId,
      changes: CredentialChanges
    ) => Answer<Credential, NotFound | InvalidParams | StoredKeyUnusable, CurrentPrincipal>
    /** Stores the order of a provider's credentials in a workspace. `ids` must name each of them once. */
    readonly order: (request: OrderRequest) => Answer<CredentialOrder, InvalidParams | OrderRefused, CurrentPrincipal>
    readonly delete: (id: CredentialId) => Answer<void, NotFound, CurrentPrincipal>
  }
>()("byok/Credentials") {}

/** Filters a list; by default, all providers of the default workspace. */
export interface ListRequest extends Omit<CredentialPage, "workspace_id"> {
  readonly workspace_id?: WorkspaceId
  readonly provider?: Provider
}

/** The order of a provider's credentials, by default in the default workspace. */
export type OrderRequest = Omit<CredentialOrder, "workspace_id"> & Partial<Pick<CredentialOrder, "workspace_id">>

/** An update must open the stored key but cannot; nothing was stored (L7). */
export class StoredKeyUnusable extends Data.TaggedError("StoredKeyUnusable")<{
  readonly id: CredentialId
  readonly reason: OpenFailure
}> {
  override get message() {
    return `The key of credential ${this.id} cannot be opened: ${this.reason.message}`
  }
}

/** The ids of an order differ from the stored credentials; nothing was stored. */
export class OrderRefused extends Data.TaggedError("OrderRefused")<OrderMismatch> {}
