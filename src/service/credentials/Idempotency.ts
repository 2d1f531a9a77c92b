import { createHmac, timingSafeEqual } from "node:crypto"
import { Duration, Effect, Layer, Option, Redacted, Result } from "effect"
import { Conflict } from "../../domain/Errors.ts"
import type { AccountId, CredentialId, IdempotencyKey, WorkspaceId } from "../../domain/Identifiers.ts"
import { labelOf } from "../../domain/labelOf.js"
import { fingerprintMembers, type NewCredential } from "../../domain/NewCredential.ts"
import { contextOf } from "../../domain/SealedKey.ts"
import { Cipher } from "../../port/Cipher.ts"
import { CredentialRepository } from "../../port/CredentialRepository.ts"
import { type IdempotencyRecord, IdempotencyRecords } from "../../port/IdempotencyRecords.ts"
import { WorkspaceResolver } from "../../port/AccountRepository.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"
import { matchesKey } from "./StoredKey.ts"

/**
 * Makes the lookup of the credential that an earlier request with the same idempotency key created. It fails with
 * `Conflict` if that request differed or its credential is deleted (L11). A request that names the default workspace or
 * the key's region equals one that omits it. The workspace and the API keys that it names need not exist any more.
 * After the provider key was replaced, any key with the label of the original one counts as equal.
 */
export const makeFindIdempotentResult = Effect.gen(function* () {
  const cipher = yield* Cipher
  const records = yield* IdempotencyRecords
  const repository = yield* CredentialRepository
  const workspaces = yield* WorkspaceResolver

  /**
   * Whether the earlier request equals this one, or differs only in that one of them names the default workspace and
   * the other none. That workspace must be `storedWorkspace`, the credential's, which is undefined if the credential
   * was deleted.
   */
  const isRepeat = Effect.fnUntraced(function* (
    account_id: AccountId,
    requestedWorkspace: WorkspaceId | undefined,
    storedWorkspace: WorkspaceId | undefined,
    matches: (workspace_id: WorkspaceId | undefined) => boolean
  ) {
    if (matches(requestedWorkspace)) return true
    const mayBeStoredIn = (id: WorkspaceId) => storedWorkspace === undefined || id === storedWorkspace
    // Only this request names a workspace.
    if (requestedWorkspace !== undefined) return mayBeStoredIn(requestedWorkspace) && matches(undefined)
    // Only the earlier one may name a workspace.
    const defaultWorkspace = Option.getOrUndefined(yield* workspaces.resolve(account_id, undefined))
    return defaultWorkspace !== undefined && mayBeStoredIn(defaultWorkspace) && matches(defaultWorkspace)
  })

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential, idempotency_key: IdempotencyKey) {
    const record = yield* records.find(account_id, keyHashOf(idempotency_key, account_id))
    if (Option.isNone(record)) return Option.none()
    const { credential_id, fingerprint } = record.value
    const row = yield* repository.findSealed(account_id, credential_id)
    const storedWorkspace = Option.getOrUndefined(row)?.credential.workspace_id

    const matches = (workspace_id: WorkspaceId | undefined) =>
      equivalentRequests(input, workspace_id).some((request) =>
        timingSafeEqual(fingerprint, fingerprintOf(idempotency_key, account_id, credential_id, request))
      )
    if (!(yield* isRepeat(account_id, input.workspace_id, storedWorkspace, matches))) return yield* Conflict.reused()
    if (Option.isNone(row)) return yield* Conflict.deleted()
    const { credential, key_version, sealed } = row.value
    if (key_version > 1) return Option.some(credential)
    const isSameKey = matchesKey(cipher, sealed, contextOf({ ...credential, account_id }), input.key)
    return Result.getOrThrow(isSameKey) ? Option.some(credential) : yield* Conflict.reused()
  })
})

/** Makes the record that later identifies a repeat of this create. */
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
 * Identifies a request by its decoded fields and the label of its provider key. Fingerprints of equal requests differ
 * by the credential's id. The MAC key is the idempotency key, which is not stored. The provider key is left out:
 * otherwise a reader of the store who guesses an idempotency key could test provider keys against the fingerprint.
 */
const fingerprintOf = (
  idempotency_key: IdempotencyKey,
  account_id: AccountId,
  id: CredentialId,
  input: NewCredential
) =>
  hmacWith(
    idempotency_key,
    "byok/fingerprint/1",
    account_id,
    id,
    fingerprintMembers(input),
    labelOf(Redacted.value(input.material.labelSource))
  )

/** The requests that create the same credential in the workspace: with and without the region that its key names. */
const equivalentRequests = (
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

/** Computes an HMAC under an idempotency key. That key is never stored, because clients may put anything in it. */
export const hmacWith = (idempotency_key: IdempotencyKey, ...parts: ReadonlyArray<unknown>) =>
  createHmac("sha256", idempotency_key).update(JSON.stringify(parts)).digest()

/** The hash under which the record of an idempotency key of an account is stored. */
export const keyHashOf = (idempotency_key: IdempotencyKey, account_id: AccountId) =>
  hmacWith(idempotency_key, "byok/idempotency-key/1", account_id)

/** How long records are kept: a day, plus an hour in case a database server with another clock takes over. */
const retention = Duration.hours(25)

/** Pause between batches, so that requests never wait long. */
const pause = Duration.millis(200)
const batchSize = 500

const deleteExpired = Effect.gen(function* () {
  const { deleteOlderThan } = yield* IdempotencyRecords
  while ((yield* deleteOlderThan(retention, batchSize)) === batchSize) yield* Effect.sleep(pause)
})

/** Searches for old idempotency records and deletes them until the service stops. Several instances may do so at once. */
export const expiryEvery = (interval: Duration.Input) =>
  Layer.effectDiscard(repeatInBackground(interval, deleteExpired, "Old idempotency records could not be deleted"))

export const expiry = expiryEvery("10 minutes")
