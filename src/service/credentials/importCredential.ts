import { createHmac } from "node:crypto"
import { Effect, Option, Redacted } from "effect"
import { decoderOf } from "../../domain/checkInput.ts"
import { InvalidParams } from "../../domain/Errors.ts"
import { type AccountId, IdempotencyKey } from "../../domain/Identifiers.ts"
import { fingerprintMembers, NewCredential } from "../../domain/NewCredential.ts"
import { accountOf, CurrentPrincipal } from "../../domain/Principal.ts"
import { CredentialRepository, PoolLimits } from "../../port/CredentialRepository.ts"
import { Credentials } from "../../port/Credentials.ts"
import { IdempotencyRecords } from "../../port/IdempotencyRecords.ts"
import { keyHashOf } from "./Idempotency.ts"
import { makeOwnershipCheck, poolIssue } from "./Ownership.ts"

/** Refuses unknown members, unlike a create over HTTP: a misspelt restriction would be lost for every record of a file. */
const decodeRecord = decoderOf(NewCredential, { onExcessProperty: "error" })

/**
 * Creates the credential that a record of an import file describes, unless an earlier import with the same salt did.
 * Fails with `InvalidParams` if that credential was deleted or its key replaced since.
 */
export const importCredential = Effect.fnUntraced(function* (body: unknown, salt: Uint8Array) {
  const { create } = yield* Credentials
  const repository = yield* CredentialRepository
  const account_id = accountOf(yield* CurrentPrincipal)
  const input = yield* decodeRecord(body)
  const created = yield* Effect.catchTag(create(input, idempotencyKeyOf(salt, input)), "Conflict", () => changedSince)
  if (!created.replayed) return created
  const stored = yield* repository.findSealed(account_id, created.credential.id)
  return Option.isSome(stored) && stored.value.key_version === 1 ? created : yield* changedSince
})

/**
 * Makes the check of a dry run, which fails if a record is invalid or its pool is full, counting the records that
 * passed before. It does not check for leaked keys, the pool's limit in bytes, or changes since an earlier import.
 */
export const makeImportCheck = Effect.fnUntraced(function* (account_id: AccountId, salt: Uint8Array) {
  const { credentials: limit } = yield* PoolLimits
  const records = yield* IdempotencyRecords
  const repository = yield* CredentialRepository
  const checkOwnership = yield* makeOwnershipCheck
  const passedKeys = new Set<IdempotencyKey>()
  /** How many more credentials fit, by workspace and provider. */
  const freePlacesByPool = new Map<string, number>()

  return Effect.fnUntraced(function* (body: unknown) {
    const input = yield* decodeRecord(body)
    const { provider } = input
    const workspace_id = yield* checkOwnership(account_id, input)
    const idempotency_key = idempotencyKeyOf(salt, input)
    const imported = yield* records.find(account_id, keyHashOf(idempotency_key, account_id))
    const poolKey = `${workspace_id} ${provider}`
    if (!freePlacesByPool.has(poolKey)) {
      const { total_count } = yield* repository.list(account_id, { workspace_id, provider, offset: 0, limit: 1 })
      // The check of another record may have set it meanwhile.
      if (!freePlacesByPool.has(poolKey)) freePlacesByPool.set(poolKey, limit - total_count)
    }
    if (Option.isSome(imported) || passedKeys.has(idempotency_key)) return
    const freePlaces = freePlacesByPool.get(poolKey) ?? 0
    if (freePlaces <= 0) return yield* InvalidParams.of(poolIssue({ unit: "credentials", limit }))
    freePlacesByPool.set(poolKey, freePlaces - 1)
    passedKeys.add(idempotency_key)
  })
})

const changedSince = InvalidParams.of({
  path: [],
  message: "was imported before, and deleted or given another key since"
})

/** Derives the same idempotency key from records with equal members. Nobody can compute it without the salt. */
const idempotencyKeyOf = (salt: Uint8Array, input: NewCredential) => {
  const mac = createHmac("sha256", salt)
    .update("byok/import/1\0")
    .update(JSON.stringify(fingerprintMembers(input)))
  return IdempotencyKey.make(mac.update("\0").update(Redacted.value(input.key)).digest("base64url"))
}
