import { Context, Effect } from "effect"
import { withKeyStoreTimeout } from "../../src/crypto/KeyEncryption.ts"
import { Cipher, KeyStoreUnavailable } from "../../src/port/Cipher.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import * as CredentialsLive from "../../src/service/credentials/Credentials.ts"
import type { Parts } from "../support/http/TestService.ts"

/** The behaviour of a key store, which may change before each call. */
export interface FaultyKeyStore {
  state: "well" | "down" | "slow" | "wrong"
}

/** The parts of a service whose key store fails as requested. */
export const partsWith = (store: FaultyKeyStore) =>
  Effect.gen(function* () {
    const parts = yield* Effect.context<Parts>()
    const cipher = Context.get(parts, Cipher)
    const seal: (typeof cipher)["seal"] = (key, context) =>
      Effect.suspend(() => {
        switch (store.state) {
          case "well":
            return cipher.seal(key, context)
          case "down":
            return Effect.fail(new KeyStoreUnavailable({ reason: "it is down" }))
          case "slow":
            return withKeyStoreTimeout(Effect.never)
          case "wrong":
            return Effect.map(cipher.seal(key, context), (sealed) => ({
              ...sealed,
              wrapped_dek: sealed.wrapped_dek.subarray(1)
            }))
        }
      })
    const credentials = yield* Effect.provideService(CredentialsLive.make, Cipher, { ...cipher, seal })
    return Context.add(parts, Credentials, credentials)
  })
