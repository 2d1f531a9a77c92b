import { createHmac, timingSafeEqual } from "node:crypto"
import { Effect, Option, Redacted } from "effect"
import { Conflict } from "../../domain/Errors.ts"
import type { AccountId, CredentialId, IdempotencyKey, WorkspaceId } from "../../domain/Identifiers.ts"
import { labelOf } from "../../domain/Label.ts"
import { fingerprinted, type NewCredential } from "../../domain/NewCredential.ts"
import { contextOf } from "../../domain/SealedKey.ts"
import { Cipher } from "../../port/Cipher.ts"
import { CredentialRepository } from "../../port/CredentialRepository.ts"
import { type IdempotencyRecord, IdempotencyRecords } from "../../port/IdempotencyRecords.ts"
import { WorkspaceResolver } from "../../port/AccountRepository.ts"

/** Hides an idempotency key, which clients may make of anything. */
export const mac = (idempotency_key: IdempotencyKey, ...parts: ReadonlyArray<unknown>) =>
  createHmac("sha256", idempotency_key).update(JSON.stringify(parts)).digest()

/** Clients may put anything into an idempotency key, so the store gets a hash, different for every account. */
export const keyHashOf = (idempotency_key: IdempotencyKey, account_id: AccountId) =>
  mac(idempotency_key, "byok/idempotency-key/1", account_id)

/**
 * Identifies a request by its decoded fields and the label of its provider key. It is keyed by the idempotency key, which is
 * not stored, and bound to the credential, so equal requests differ. It covers no more of the provider key than everybody who
 * reads the store sees: they must not be able to try keys by guessing an idempotency key.
 */
const fingerprintOf = (
  idempotency_key: IdempotencyKey,
  account_id: AccountId,
  id: CredentialId,
  input: NewCredential
) =>
  mac(
    idempotency_key,
    "byok/fingerprint/1",
    account_id,
    id,
    fingerprinted(input),
    labelOf(Redacted.value(input.material.secret))
  )

/** A request written with this workspace, and with the region of its key both named and left out. */
const spellingsOf = (
  { workspace_id: _, ...input }: NewCredential,
  workspace_id: WorkspaceId | undefined
): ReadonlyArray<NewCredential> => {
  const {
    declared_region,
    material: { region }
  } = input
  const regions = declared_region === null || declared_region === region ? [null, region] : [declared_region]
  return regions.map((declared_region) => ({
    ...input,
    declared_region,
    ...(workspace_id === undefined ? {} : { workspace_id })
  }))
}

/** What is stored with a credential to recognise a repeated create. */
export const idempotencyRecordOf = (
  account_id: AccountId,
  id: CredentialId,
  input: NewCredential,
  idempotency_key: IdempotencyKey
): IdempotencyRecord => ({
  key_hash: keyHashOf(idempotency_key, account_id),
  fingerprint: fingerprintOf(idempotency_key, account_id, id, input)
})

/**
 * Finds the credential that an earlier request with the idempotency key created; `Conflict` if that was a different
 * request, or its credential is deleted (L11). Naming the default workspace or the region of the key means the same as
 * leaving it out. Workspace and API keys may be gone by then and are not checked. The provider key is compared with the sealed
 * one; once that was replaced, its label has to do.
 */
export const makeFindIdempotentResult = Effect.gen(function* () {
  const cipher = yield* Cipher
  const records = yield* IdempotencyRecords
  const repository = yield* CredentialRepository
  const workspaces = yield* WorkspaceResolver

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential, idempotency_key: IdempotencyKey) {
    const record = yield* records.find(account_id, keyHashOf(idempotency_key, account_id))
    if (Option.isNone(record)) return Option.none()
    const { credential_id, fingerprint } = record.value
    const found = yield* repository.findSealed(account_id, credential_id)
    const stored_in = Option.getOrUndefined(found)?.credential.workspace_id

    const isOf = (workspace_id: WorkspaceId | undefined) =>
      spellingsOf(input, workspace_id).some((spelling) =>
        timingSafeEqual(fingerprint, fingerprintOf(idempotency_key, account_id, credential_id, spelling))
      )
    const isSame = Effect.gen(function* () {
      const requested = input.workspace_id
      if (isOf(requested)) return true
      if (requested !== undefined) return (requested === stored_in || stored_in === undefined) && isOf(undefined)
      const current = Option.getOrUndefined(yield* workspaces.resolve(account_id, undefined))
      return current !== undefined && (current === stored_in || stored_in === undefined) && isOf(current)
    })
    if (!(yield* isSame)) return yield* Conflict.reused()
    if (Option.isNone(found)) return yield* Conflict.deleted()
    const { credential, key_version, sealed } = found.value
    if (key_version > 1) return Option.some(credential)
    const held = cipher.holds(sealed, contextOf({ ...credential, account_id }), input.key)
    return (yield* Effect.orDie(held)) ? Option.some(credential) : yield* Conflict.reused()
  })
})
