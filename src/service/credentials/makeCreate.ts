import { Effect, Option, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { InvalidParams } from "../../domain/Errors.ts"
import { type AccountId, CredentialId, type IdempotencyKey } from "../../domain/Identifiers.ts"
import { leakedKey } from "../../domain/KeyMaterial.ts"
import { labelOf } from "../../domain/Label.ts"
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
import { checkSigning } from "../tokens/mint.ts"
import { idempotencyRecordOf, makeFindIdempotentResult } from "./findIdempotentResult.ts"
import { makeLeakCheck } from "./LeakResponse.ts"
import { makeOwnershipCheck, poolIssue, workspaceIssue } from "./Ownership.ts"

/** A workspace deleted since the request was checked is refused like one deleted before. */
const inWorkspace = <A>({ workspace_id }: NewCredential, stored: Answer<A, WorkspaceGone | PoolFull>) =>
  Effect.catchTags(stored, {
    WorkspaceGone: () => Effect.fail(InvalidParams.of(workspaceIssue(workspace_id))),
    PoolFull: (full) => Effect.fail(InvalidParams.of(poolIssue(full)))
  })

interface Prepared {
  readonly credential: UnstoredCredential
  readonly sealed: SealedKey
}

/** Makes the create, of which each line is a step: look up an earlier result, check ownership and leaks, seal, store. */
export const makeCreate = Effect.gen(function* () {
  const cipher = yield* Cipher
  const random = yield* SecureRandom.SecureRandom
  const repository = yield* CredentialRepository
  const holdsLeak = yield* makeLeakCheck
  const ownedWorkspace = yield* makeOwnershipCheck
  const findIdempotentResult = yield* makeFindIdempotentResult

  /** The credential that a create would store, and its sealed key. Stores nothing. */
  const prepare = (account_id: AccountId, input: NewCredential): Answer<Prepared, InvalidParams> =>
    Effect.flatMap(ownedWorkspace(account_id, input), (workspace_id) => {
      const { key, material, ...fields } = input
      return Effect.flatMap(holdsLeak(account_id, input.provider, key), (isLeaked): Answer<Prepared, InvalidParams> => {
        if (isLeaked) return Effect.fail(InvalidParams.of(leakedKey))
        return Effect.flatMap(random.uuidV7(), (id) => {
          const credential: UnstoredCredential = {
            ...fields,
            id: CredentialId.make(id, { disableChecks: true }),
            workspace_id,
            label: labelOf(Redacted.value(material.labelled)),
            declared_region: input.declared_region ?? material.region
          }
          const sealing = Effect.catchTag(
            cipher.seal(key, contextOf({ ...credential, account_id })),
            "KeyStoreUnavailable",
            Effect.die
          )
          return Effect.map(sealing, (sealed) => ({ credential, sealed }))
        })
      })
    })

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential, idempotency_key?: IdempotencyKey) {
    const found =
      idempotency_key === undefined ? Effect.succeedNone : findIdempotentResult(account_id, input, idempotency_key)
    const earlier = yield* found
    if (Option.isSome(earlier)) return { credential: earlier.value, replayed: true }
    yield* checkSigning(input.provider, input.key)
    const { credential, sealed } = yield* prepare(account_id, input)
    const record = idempotency_key && idempotencyRecordOf(account_id, credential.id, input, idempotency_key)
    const inserted = inWorkspace(input, repository.insert(account_id, credential, sealed, record))
    // The same request may have been stored meanwhile, in the last place of its pool.
    const created = yield* Effect.catchTag(inserted, "InvalidParams", (refused) =>
      Effect.flatMap(found, (same) => (Option.isSome(same) ? Effect.succeedNone : Effect.fail(refused)))
    )
    if (Option.isSome(created)) return { credential: created.value, replayed: false }
    const concurrent = yield* found
    if (Option.isSome(concurrent)) return { credential: concurrent.value, replayed: true }
    return yield* Effect.die(new Error("The conflicting idempotency record has disappeared"))
  })
})
