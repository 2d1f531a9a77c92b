import { Effect, Layer } from "effect"
import { Keyring, parseKeyring } from "../../../src/crypto/keyring/Keyring.ts"

/** A keyring that stays as it is. */
export const fixedKeyring = (keyring: string) =>
  Layer.sync(Keyring, () => {
    const ring = parseKeyring(keyring)
    return { current: () => ring, reload: Effect.succeed(ring) }
  })
