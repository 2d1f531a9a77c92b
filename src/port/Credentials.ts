import { Context, type Effect } from "effect"
import type { Credential } from "../domain/Credential.ts"
import type { CredentialId } from "../domain/CredentialId.ts"
import type { CurrentCaller } from "../domain/CurrentCaller.ts"
import type { Conflict, InvalidParams, NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import type { IdempotencyKey } from "../domain/IdempotencyKey.ts"
import type { NewCredential } from "../domain/NewCredential.ts"

/**
 * The operations of section 4 on behalf of the `CurrentCaller`, as HTTP and the gateway call them.
 * @effect-expect-leaking CurrentCaller
 */
export class Credentials extends Context.Service<
  Credentials,
  {
    /** Seals the key and stores the credential (section 4.1). */
    readonly create: (
      input: NewCredential
    ) => Effect.Effect<Credential, InvalidParams | ServiceUnavailable, CurrentCaller>
    /**
     * A create that is safe to retry: an idempotency key stands for one credential of the account, which every call
     * returns, `replayed` if an earlier call stored it. Fails with `Conflict` if that call was a different request.
     * Without an idempotency key it is a plain create.
     */
    readonly createOnce: (
      input: NewCredential,
      idempotency_key: IdempotencyKey | undefined
    ) => Effect.Effect<
      { readonly credential: Credential; readonly replayed: boolean },
      InvalidParams | Conflict | ServiceUnavailable,
      CurrentCaller
    >
    /** Fails with `NotFound` for an unknown credential and for another account's alike (section 4.2, D5). */
    readonly get: (id: CredentialId) => Effect.Effect<Credential, NotFound | ServiceUnavailable, CurrentCaller>
  }
>()("byok/Credentials") {}
