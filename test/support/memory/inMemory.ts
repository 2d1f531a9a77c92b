import { NodeCrypto } from "@effect/platform-node"
import { DateTime, Effect, Layer } from "effect"
import * as CipherLive from "../../../src/crypto/CipherLive.ts"
import { generateKeyring } from "../../../src/crypto/keyring/Keyring.ts"
import { WrapBudget } from "../../../src/crypto/WrapBudget.ts"
import type { AccountId, ApiKeyHash } from "../../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import type { Cipher } from "../../../src/port/Cipher.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { fixedKeyring } from "../keys/keyrings.ts"
import * as MemoryStore from "./Memory.ts"
import { defaultSettings } from "../service/defaultSettings.ts"

/** The cipher of a keyring, without a count of wraps unless one is given. */
export const cipherOn = (keyring: string, spend: WrapBudget["Service"]["spend"] = () => Effect.void) =>
  CipherLive.layer.pipe(Layer.provide([fixedKeyring(keyring), Layer.succeed(WrapBudget, { spend })]))

/** The services over stores in memory, and every port; new wherever it is provided. */
export const inMemory = (cipher: Layer.Layer<Cipher> = cipherOn(generateKeyring(new Date(0)))) =>
  Layer.fresh(
    CredentialsLive.layer.pipe(
      Layer.provideMerge(cipher),
      Layer.provideMerge(MemoryStore.layer),
      Layer.provideMerge(NodeCrypto.layerSecureRandom),
      Layer.provideMerge(defaultSettings)
    )
  )

/** Gives the account all API keys that a body names. */
export const own = Effect.fnUntraced(function* (account_id: AccountId, body: Readonly<Record<string, unknown>>) {
  const { addApiKey } = yield* AccountRepository
  const created_at = yield* DateTime.now
  for (const hash of (body["allowed_api_key_hashes"] ?? []) as ReadonlyArray<ApiKeyHash>) {
    yield* addApiKey(account_id, { hash, name: "a key", role: "ordinary", created_at })
  }
})
