import { Effect, Layer } from "effect"
import { KeyEncryption } from "../../../src/crypto/KeyEncryption.ts"
import { Keyring, makeKeyringEncryption, parseKeyring } from "../../../src/crypto/keyring/Keyring.ts"

/** A keyring of obviously fake keys with these ids, the first primary. */
export const ringOf = (...ids: ReadonlyArray<string>): string =>
  ids.map((id) => `${id}:${Buffer.alloc(32, `${id}-`).toString("base64")}`).join("\n")

/** The bytes of one of these keys under the id of another. */
export const disguised = (id: string, as: string): string => ringOf(id).replace(`${id}:`, `${as}:`)

/** A keyring that stays as it is. */
export const fixedKeyring = (keyring: string) =>
  Layer.sync(Keyring, () => {
    const ring = parseKeyring(keyring)
    return { current: () => ring, reload: Effect.succeed(ring) }
  })

/** Wraps with the keys of a keyring alone. */
export const keyringEncryption = Layer.effect(
  KeyEncryption,
  Effect.map(Keyring, (keyring) => makeKeyringEncryption(keyring))
)
