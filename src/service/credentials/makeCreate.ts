import { Effect, Option, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { InvalidParams } from "../../domain/Errors.ts"
import { type AccountId, CredentialId, type IdempotencyKey } from "../../domain/Identifiers.ts"
import { leakedKey } from "../../domain/KeyMaterial.ts"
import { labelOf } from "../../domain/labelOf.js"
import type { NewCredential } from "../../domain/NewCredential.ts"
import { contextOf, type SealedKey } from "../../domain/SealedKey.ts"
import { Cipher } from "../../port/Cipher.ts"
import {
  CredentialRepository,
  type PoolFull,
  type UnstoredCredential,
  type WorkspaceGone
} from "../../port/CredentialRepository.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import { idempotencyRecordOf, makeFindIdempotentResult } from "./Idempotency.ts"
import { makeLeakCheck } from "./LeakResponse.ts"
import { makeOwnershipCheck, poolIssue, workspaceIssue } from "./Ownership.ts"

/** Makes the create operation: looks up an earlier result, checks the key and ownership, seals, and stores. */
export const makeCreate = Effect.gen(function* () {
  const cipher = yield* Cipher
  const random = yield* SecureRandom.SecureRandom
  const repository = yield* CredentialRepository
  const hasLeaked = yield* makeLeakCheck
  const checkOwnership = yield* makeOwnershipCheck
  const findIdempotentResult = yield* makeFindIdempotentResult

  const checkAndSeal = (account_id: AccountId, input: NewCredential): Answer<Prepared, InvalidParams> =>
    Effect.flatMap(checkOwnership(account_id, input), (workspace_id) => {
      const { key, material, ...fields } = input
      return Effect.flatMap(hasLeaked(account_id, input.provider, key), (isLeaked): Answer<Prepared, InvalidParams> => {
        if (isLeaked) return Effect.fail(InvalidParams.of(leakedKey))
        return Effect.flatMap(random.uuidV7(), (id) => {
          const credential: UnstoredCredential = {
            ...fields,
            id: CredentialId.make(id, { disableChecks: true }),
            workspace_id,
            label: labelOf(Redacted.value(material.labelSource)),
            declared_region: input.declared_region ?? material.region
          }
          const sealing = Effect.catchTag(
            cipher.seal(key, contextOf({ ...credential, account_id })),
            "SealingRefused",
            Effect.die
          )
          return Effect.map(sealing, (sealed) => ({ credential, sealed }))
        })
      })
    })

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential, idempotency_key?: IdempotencyKey) {
    const findEarlier =
      idempotency_key === undefined ? Effect.succeedNone : findIdempotentResult(account_id, input, idempotency_key)
    const earlier = yield* findEarlier
    if (Option.isSome(earlier)) return { credential: earlier.value, replayed: true }
    const { credential, sealed } = yield* checkAndSeal(account_id, input)
    const record = idempotency_key && idempotencyRecordOf(account_id, credential.id, input, idempotency_key)
    const inserted = refuseIfGoneOrFull(input, repository.insert(account_id, credential, sealed, record))
    // None if a concurrent repeat of this create stored the record first. Its credential may also have filled the pool.
    const created = yield* Effect.catchTag(inserted, "InvalidParams", (refused) =>
      Effect.flatMap(findEarlier, (result) => (Option.isSome(result) ? Effect.succeedNone : Effect.fail(refused)))
    )
    if (Option.isSome(created)) return { credential: created.value, replayed: false }
    const concurrent = yield* findEarlier
    if (Option.isSome(concurrent)) return { credential: concurrent.value, replayed: true }
    return yield* Effect.die(new Error("The conflicting idempotency record has disappeared"))
  })
})

/** Turns a workspace that was deleted since the check, and a full pool, into `InvalidParams`. */
const refuseIfGoneOrFull = <A>({ workspace_id }: NewCredential, insertion: Answer<A, WorkspaceGone | PoolFull>) =>
  Effect.catchTags(insertion, {
    WorkspaceGone: () => Effect.fail(InvalidParams.of(workspaceIssue(workspace_id))),
    PoolFull: (full) => Effect.fail(InvalidParams.of(poolIssue(full)))
  })

/** A new credential that passed the checks, with its sealed key. */
interface Prepared {
  readonly credential: UnstoredCredential
  readonly sealed: SealedKey
}
