import { randomUUID } from "node:crypto"
import { Arbitrary, Effect, Layer, Option, Redacted, Result } from "effect"
import { registerKeyring } from "../../../src/crypto/keyring/Keyring.ts"
import { contextOf } from "../../../src/domain/SealedKey.ts"
import * as CipherLive from "../../../src/crypto/CipherLive.ts"
import { layerLimited, limits } from "../../../src/crypto/WrapBudget.ts"
import { type AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import { Cipher } from "../../../src/port/Cipher.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { openKey } from "../../../src/service/credentials/StoredKey.ts"
import { Rotation } from "../../../src/service/keyring/Rotation.ts"
import { storedCredential } from "../memory/arbitraries.ts"
import { fixedKeyring, parsed } from "./keyrings.ts"
import { cipherOn } from "../memory/inMemory.ts"
import { newTenant } from "../database/newTenant.ts"

/** A credential and the raw key that it was made with. */
export interface Made {
  readonly account_id: AccountId
  readonly id: CredentialId
  readonly key: string
}

/** The cipher of an instance with a keyring. */
export const cipherWith = (keyring: string) => Effect.provide(Cipher, cipherOn(keyring))

/** Stores credentials of any kind, each account's own, sealed under the first key of a keyring. */
export const sealUnder = Effect.fnUntraced(function* (keyring: string, count: number) {
  const cipher = yield* cipherWith(keyring)
  const repository = yield* CredentialRepository
  const samples = yield* Arbitrary.sampleEffect(storedCredential, { count, seed: 1 })
  return yield* Effect.forEach(samples, (sample) =>
    Effect.gen(function* () {
      const { account_id, workspace_id } = yield* newTenant
      const credential = { ...sample, id: CredentialId.make(randomUUID()), workspace_id }
      const key = `fake-key-${credential.id}`
      const sealed = yield* cipher.seal(Redacted.make(key), contextOf({ ...credential, account_id }))
      yield* repository.insert(account_id, credential, sealed)
      return { account_id, id: credential.id, key } satisfies Made
    })
  )
})

/** Opens each credential with a keyring, or under the key id `claimed`. Returns raw keys or tags of errors. */
export const openedWith = Effect.fnUntraced(function* (keyring: string, made: ReadonlyArray<Made>, claimed?: string) {
  const cipher = yield* cipherWith(keyring)
  const repository = yield* CredentialRepository
  return yield* Effect.forEach(made, ({ account_id, id }) =>
    Effect.gen(function* () {
      const { credential, sealed } = Option.getOrThrow(yield* repository.findSealed(account_id, id))
      const named = { ...sealed, kek_id: claimed ?? sealed.kek_id }
      return Result.match(openKey(cipher, named, contextOf({ ...credential, account_id })), {
        onFailure: ({ _tag }): string => _tag,
        onSuccess: (key) => Redacted.value(key)
      })
    })
  )
})

/** Sorts credentials into the order in which a rewrap takes them. */
export const inOrder = (made: ReadonlyArray<Made>): ReadonlyArray<Made> =>
  made.toSorted((one, other) => (`${one.account_id} ${one.id}` < `${other.account_id} ${other.id}` ? -1 : 1))

export const keysOf = (made: ReadonlyArray<Made>): ReadonlyArray<string> => made.map(({ key }) => key)

/** The rotation of an instance with a keyring, over the stores in scope. */
export const rotationWith = (keyring: string, lowered = limits) =>
  Effect.provide(
    Rotation,
    Rotation.layer.pipe(
      Layer.provide(CipherLive.rewrapper),
      Layer.provide(layerLimited(lowered)),
      Layer.provide(Layer.effectDiscard(registerKeyring(parsed(keyring))).pipe(Layer.merge(fixedKeyring(keyring))))
    )
  )
