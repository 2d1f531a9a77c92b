import { createHash, createHmac, timingSafeEqual } from "node:crypto"
import { Effect, Option, Redacted } from "effect"
import type { AccountId } from "../domain/AccountId.ts"
import type { Credential } from "../domain/Credential.ts"
import type { CredentialId } from "../domain/CredentialId.ts"
import { Conflict, type InvalidParams, type ServiceUnavailable } from "../domain/Errors.ts"
import type { IdempotencyKey } from "../domain/IdempotencyKey.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import { Cipher } from "../port/Cipher.ts"
import { CredentialRepository } from "../port/CredentialRepository.ts"
import { inKeyStoreTime } from "./inKeyStoreTime.ts"
import { Receipts } from "../port/Receipts.ts"

const mac = (idempotency_key: IdempotencyKey, ...parts: ReadonlyArray<unknown>) =>
  createHmac("sha256", idempotency_key).update(JSON.stringify(parts)).digest()

/** Clients put into idempotency keys what they like, so the store gets a hash, in which accounts share nothing. */
const keyHashOf = (idempotency_key: IdempotencyKey, account_id: AccountId) =>
  mac(idempotency_key, "byok/idempotency-key/1", account_id)

/**
 * Tells apart requests as they were decoded, whatever their bytes were: every field but the provider key, by its name,
 * as given. It is keyed by the idempotency key, which the store does not have, and bound to the credential, so that
 * equal requests leave no equal fingerprints. The provider key is left out because somebody who reads the store and
 * guesses an idempotency key could else try provider keys against the fingerprint; of it the store has nothing but the
 * sealed key, which is opened and compared.
 */
const fingerprintOf = (
  idempotency_key: IdempotencyKey,
  account_id: AccountId,
  id: CredentialId,
  { key: _, ...fields }: NewCredential
) => {
  const given = Object.entries(fields).sort(([one], [other]) => (one < other ? -1 : 1))
  return mac(idempotency_key, "byok/fingerprint/1", account_id, id, given)
}

const digestOf = (key: Redacted.Redacted) => createHash("sha256").update(Redacted.value(key)).digest()

/** Makes a credential and seals its key, if the account may have it. */
type Prepare = (
  account_id: AccountId,
  input: NewCredential
) => Effect.Effect<
  { readonly credential: Omit<Credential, "sort_order">; readonly sealed: SealedKey },
  InvalidParams | ServiceUnavailable
>

/**
 * Makes the create that may be repeated: the first request under an idempotency key that succeeds stores a credential
 * and its receipt, and the same request is answered with that credential from then on. What the request may use is
 * looked at once, for a workspace or API key may be gone when it is repeated.
 */
export const makeCreateOnce = Effect.fnUntraced(function* (prepare: Prepare) {
  const cipher = yield* Cipher
  const receipts = yield* Receipts
  const repository = yield* CredentialRepository

  /** The credential that the account has got under the idempotency key, if it was for the same request. */
  const replay = Effect.fnUntraced(function* (
    account_id: AccountId,
    input: NewCredential,
    idempotency_key: IdempotencyKey
  ) {
    const receipt = yield* receipts.find(account_id, keyHashOf(idempotency_key, account_id))
    if (Option.isNone(receipt)) return Option.none()
    const { credential_id, fingerprint } = receipt.value
    const expected = fingerprintOf(idempotency_key, account_id, credential_id, input)
    if (!timingSafeEqual(fingerprint, expected)) return yield* new Conflict()
    const found = yield* repository.findSealed(account_id, credential_id)
    if (Option.isNone(found)) return Option.none()
    const { credential, sealed } = found.value
    const key = yield* Effect.orDie(inKeyStoreTime(cipher.open(sealed, { ...credential, account_id })))
    return timingSafeEqual(digestOf(key), digestOf(input.key)) ? Option.some(credential) : yield* new Conflict()
  })

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential, idempotency_key: IdempotencyKey) {
    const before = yield* replay(account_id, input, idempotency_key)
    if (Option.isSome(before)) return { credential: before.value, replayed: true }
    const { credential, sealed } = yield* prepare(account_id, input)
    const created = yield* receipts.insert(account_id, credential, sealed, {
      key_hash: keyHashOf(idempotency_key, account_id),
      fingerprint: fingerprintOf(idempotency_key, account_id, credential.id, input)
    })
    if (Option.isSome(created)) return { credential: created.value, replayed: false }
    const meanwhile = yield* replay(account_id, input, idempotency_key)
    if (Option.isSome(meanwhile)) return { credential: meanwhile.value, replayed: true }
    return yield* Effect.die(new Error("A receipt was there and is gone"))
  })
})
