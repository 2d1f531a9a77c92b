import { createHash, createHmac, timingSafeEqual } from "node:crypto"
import { Effect, Option, Redacted } from "effect"
import type { AccountId } from "../domain/AccountId.ts"
import type { CredentialId } from "../domain/CredentialId.ts"
import { Conflict } from "../domain/Errors.ts"
import type { IdempotencyKey } from "../domain/IdempotencyKey.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import { Cipher } from "../port/Cipher.ts"
import { CredentialRepository } from "../port/CredentialRepository.ts"
import { type Receipt, Receipts } from "../port/Receipts.ts"
import { withKeyStoreTimeout } from "./withKeyStoreTimeout.ts"

const mac = (idempotency_key: IdempotencyKey, ...parts: ReadonlyArray<unknown>) =>
  createHmac("sha256", idempotency_key).update(JSON.stringify(parts)).digest()

/** Clients may put anything into an idempotency key, so the store gets a hash, different for every account. */
const keyHashOf = (idempotency_key: IdempotencyKey, account_id: AccountId) =>
  mac(idempotency_key, "byok/idempotency-key/1", account_id)

/**
 * Identifies a request by its decoded fields, except the provider key. It is keyed by the idempotency key, which is not
 * stored, and bound to the credential, so equal requests have different fingerprints. A reader of the store who guesses
 * an idempotency key must not be able to try provider keys against the fingerprint, so the provider key is left out and
 * compared with the sealed one instead.
 */
const fingerprintOf = (
  idempotency_key: IdempotencyKey,
  account_id: AccountId,
  id: CredentialId,
  { key: _, ...fields }: NewCredential
) => {
  const sorted = Object.entries(fields).sort(([one], [other]) => (one < other ? -1 : 1))
  return mac(idempotency_key, "byok/fingerprint/1", account_id, id, sorted)
}

const digestOf = (key: Redacted.Redacted) => createHash("sha256").update(Redacted.value(key)).digest()

/** What is stored with a credential to recognise a repeated create. */
export const receiptOf = (
  account_id: AccountId,
  id: CredentialId,
  input: NewCredential,
  idempotency_key: IdempotencyKey
): Receipt => ({
  key_hash: keyHashOf(idempotency_key, account_id),
  fingerprint: fingerprintOf(idempotency_key, account_id, id, input)
})

/**
 * Makes the lookup of the credential that an idempotency key has created: none if there is none yet, `Conflict` if it
 * was a different request. Workspace and API keys are not checked again, since they may be gone by then.
 */
export const makeReplay = Effect.gen(function* () {
  const cipher = yield* Cipher
  const receipts = yield* Receipts
  const repository = yield* CredentialRepository

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential, idempotency_key: IdempotencyKey) {
    const receipt = yield* receipts.find(account_id, keyHashOf(idempotency_key, account_id))
    if (Option.isNone(receipt)) return Option.none()
    const { credential_id, fingerprint } = receipt.value
    const expected = fingerprintOf(idempotency_key, account_id, credential_id, input)
    if (!timingSafeEqual(fingerprint, expected)) return yield* new Conflict()
    const found = yield* repository.findSealed(account_id, credential_id)
    if (Option.isNone(found)) return Option.none()
    const { credential, sealed } = found.value
    const key = yield* Effect.orDie(withKeyStoreTimeout(cipher.open(sealed, { ...credential, account_id })))
    return timingSafeEqual(digestOf(key), digestOf(input.key)) ? Option.some(credential) : yield* new Conflict()
  })
})
