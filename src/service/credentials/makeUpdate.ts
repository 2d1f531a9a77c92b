import { Duration, Effect, Option, RcMap, Result, Semaphore } from "effect"
import { changeCredential, type CredentialChanges, type KeyFacts } from "../../domain/CredentialChanges.ts"
import { InvalidParams, NotFound, ServiceUnavailable } from "../../domain/Errors.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { readKeyMaterial } from "../../domain/KeyMaterial.ts"
import { actingPrincipal } from "../../domain/Principal.ts"
import { takesRegionInKey } from "../../domain/Provider.ts"
import { contextOf, type SealedKey } from "../../domain/SealedKey.ts"
import { ApiKeys } from "../../port/ApiKeys.ts"
import { Cipher, type OpenFailure } from "../../port/Cipher.ts"
import { CredentialRepository, type StoredCredential } from "../../port/CredentialRepository.ts"
import { RequestTimeout, timeLeft } from "../../runtime/Deadline.ts"
import { StoredKeyUnusable } from "../../port/Credentials.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import { makeLeakCheck } from "./LeakResponse.ts"
import { foreignHashIssues, poolIssue } from "./Ownership.ts"
import { matchesKey, openKey, resealKey } from "./StoredKey.ts"

/**
 * Makes the update operation: applies changes to the stored credential, and stores the result unless the credential
 * changed meanwhile. Updates that lose this race retry one after the other until their deadline. So every stored state
 * meets the rules, and concurrent updates of different fields all take effect (L9).
 */
export const makeUpdate = Effect.gen(function* () {
  const apiKeys = yield* ApiKeys
  const cipher = yield* Cipher
  const hasLeaked = yield* makeLeakCheck
  const repository = yield* CredentialRepository
  const timeout = Duration.toMillis(yield* RequestTimeout)
  /** The lock of each credential whose update is being retried, by account and id. */
  const locks = yield* RcMap.make({ lookup: (_: string) => Semaphore.make(1) })

  /** Fails if the stored key does not open. */
  const orUnusable = <A>(id: CredentialId, opened: Result.Result<A, OpenFailure>) =>
    Effect.fromResult(Result.mapError(opened, (reason) => new StoredKeyUnusable({ id, reason })))

  /** Collects the facts that the changes depend on; opens the stored key only if they need it. */
  const inspectKeys = Effect.fnUntraced(function* (
    account_id: AccountId,
    { credential, sealed }: StoredCredential,
    changes: CredentialChanges
  ) {
    const context = contextOf({ ...credential, account_id })
    const { id, provider } = credential
    if (changes.key !== undefined) {
      // A replace link always stores: its answer must not confirm a guess of the stored key.
      const principal = yield* actingPrincipal
      const isReplaceLink = principal.kind === "link" && principal.purpose === "replace"
      const isSameKey = !isReplaceLink && (yield* orUnusable(id, matchesKey(cipher, sealed, context, changes.key)))
      return { isSameKey, isLeaked: yield* hasLeaked(account_id, provider, changes.key) } satisfies KeyFacts
    }
    if (changes.declared_region === undefined || !takesRegionInKey(provider)) return {}
    const material = readKeyMaterial(provider, yield* orUnusable(id, openKey(cipher, sealed, context)))
    return { storedRegion: Result.match(material, { onFailure: () => null, onSuccess: ({ region }) => region }) }
  })

  /** Returns the updated credential; none if another update came first. */
  const attempt = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId, changes: CredentialChanges) {
    const row = yield* repository.findSealed(account_id, id)
    if (Option.isNone(row)) return yield* new NotFound()
    const { credential: stored, key_version, revision, sealed } = row.value
    const hashIssues = yield* foreignHashIssues(
      apiKeys,
      account_id,
      changes.allowed_api_key_hashes ?? null,
      stored.allowed_api_key_hashes
    )
    const changed = changeCredential(stored, changes, yield* inspectKeys(account_id, row.value, changes))
    if (Result.isFailure(changed)) return yield* InvalidParams.of(...changed.failure, ...hashIssues)
    if (hashIssues.length > 0) return yield* InvalidParams.of(...hashIssues)

    const { credential, fields, mustSeal } = changed.success
    if (fields.length === 0) return Option.some(stored)
    const context = contextOf({ ...credential, account_id })
    const newKey = fields.includes("key") ? changes.key : undefined
    const unusable = (reason: OpenFailure) => Effect.fail(new StoredKeyUnusable({ id, reason }))
    const seal: Answer<SealedKey, StoredKeyUnusable> = Effect.catchTags(
      newKey === undefined
        ? resealKey(cipher, sealed, contextOf({ ...stored, account_id }), context)
        : cipher.seal(newKey, context),
      {
        SealingRefused: Effect.die,
        UnknownKeyId: unusable,
        UnsupportedFormat: unusable,
        AuthenticationFailed: unusable
      }
    )
    const update = repository.update(account_id, {
      credential,
      revision,
      fields,
      sealed: mustSeal ? yield* seal : undefined,
      key_version: newKey === undefined ? key_version : key_version + 1
    })
    const isStored = yield* Effect.catchTag(update, "PoolFull", (full) => InvalidParams.of(poolIssue(full)))
    return isStored ? Option.some(credential) : Option.none()
  })

  return Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId, changes: CredentialChanges) {
    const deadline = performance.now() + (yield* timeLeft(timeout))
    const first = yield* attempt(account_id, id, changes)
    if (Option.isSome(first)) return first.value
    const retries = Effect.repeat(attempt(account_id, id, changes), {
      until: (result) => Option.isSome(result) || performance.now() >= deadline
    })
    const lock = RcMap.get(locks, `${account_id} ${id}`)
    const updated = yield* Effect.scoped(Effect.flatMap(lock, (semaphore) => semaphore.withPermit(retries)))
    return Option.isSome(updated) ? updated.value : yield* new ServiceUnavailable()
  })
})
