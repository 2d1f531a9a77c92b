import { DateTime, Effect, Option } from "effect"
import { SecureRandom } from "effect/crypto"
import type { Credential } from "../domain/Credential.ts"
import { type AccountId, CredentialId } from "../domain/Identifiers.ts"
import { readKeyMaterial } from "../domain/KeyMaterial.ts"
import { labelOf } from "../domain/Label.ts"
import type { NewCredential } from "../domain/NewCredential.ts"
import { Cipher } from "../port/Cipher.ts"
import { makeOwnershipCheck } from "./makeOwnershipCheck.ts"
import { withKeyStoreTimeout } from "./withKeyStoreTimeout.ts"

/** Makes the first half of every create: checks ownership, completes the credential and seals its key. Stores nothing. */
export const makePreparation = Effect.gen(function* () {
  const cipher = yield* Cipher
  const random = yield* SecureRandom.SecureRandom
  const ownedWorkspace = yield* makeOwnershipCheck

  return Effect.fnUntraced(function* (account_id: AccountId, input: NewCredential) {
    const workspace_id = yield* ownedWorkspace(account_id, input)
    const { key, ...fields } = input
    const material = Option.getOrThrow(readKeyMaterial(input.provider, key))
    const credential: Omit<Credential, "sort_order"> = {
      ...fields,
      id: CredentialId.make(yield* random.uuidV7()),
      workspace_id,
      label: labelOf(material.secret),
      created_at: yield* DateTime.now,
      declared_region: input.declared_region ?? material.region
    }
    const sealed = yield* Effect.catchTag(
      withKeyStoreTimeout(cipher.seal(key, { ...credential, account_id })),
      "KeyStoreUnavailable",
      Effect.die
    )
    return { credential, sealed }
  })
})
