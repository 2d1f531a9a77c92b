import { Layer, Result } from "effect"
import { Keyring, parseKeyring } from "../../../src/crypto/keyring/Keyring.ts"

/** A keyring of obviously fake keys with these ids, the first primary. */
export const ringOf = (...ids: ReadonlyArray<string>): string =>
  ids.map((id) => `${id}:${Buffer.alloc(32, `${id}-`).toString("base64")}`).join("\n")

/** The bytes of one of these keys under the id of another. */
export const disguised = (id: string, as: string): string => ringOf(id).replace(`${id}:`, `${as}:`)

/** Parses a keyring that must be valid. */
export const parsed = (keyring: string) => Result.getOrThrow(parseKeyring(keyring))

/** A keyring that stays as it is. */
export const fixedKeyring = (keyring: string) =>
  Layer.sync(Keyring, () => {
    const ring = parsed(keyring)
    return { current: () => ring }
  })
