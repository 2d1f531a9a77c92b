import { randomBytes } from "node:crypto"
import { Context, Data, Effect } from "effect"
import { isKekId, kekIdForm } from "../../domain/KekId.ts"
import { type Kek, makeKek } from "./Kek.ts"

/** The keys of an instance at one moment. The first seals and opens; the others, pending or to be retired, only open. */
export interface Ring {
  readonly primary: Kek | undefined
  readonly byId: ReadonlyMap<string, Kek>
}

/** The keys that this instance uses. They are replaced as a whole, so ask once for two that must fit together. */
export class Keyring extends Context.Service<Keyring, { readonly current: () => Ring }>()("byok/Keyring") {}

/** Says which line is wrong and what is expected, never what was found there. */
export class InvalidKeyring extends Data.TaggedError("InvalidKeyring")<{ readonly message: string }> {}

const parseEntry = (text: string, position: number): Kek => {
  const refuse = (found: string) => {
    const message = `key ${position}: expected id:base64 of 32 bytes, with an id of ${kekIdForm}; found ${found}`
    return new InvalidKeyring({ message })
  }
  const [id, base64, more] = text.split(":")
  if (!isKekId(id) || base64 === undefined || more !== undefined) {
    throw refuse(`${text.length} characters of another form`)
  }
  const bytes = Buffer.from(base64, "base64")
  try {
    if (bytes.toString("base64") !== base64) throw refuse("base64 that is not canonical")
    if (bytes.length !== 32) throw refuse(`${bytes.length} bytes`)
    if (bytes.every((byte) => byte === bytes[0])) throw refuse("32 equal bytes")
    return makeKek(id, bytes)
  } finally {
    bytes.fill(0)
  }
}

/** Reads a keyring: one `id:base64` a line, the first is the primary key. Throws `InvalidKeyring`. */
export const parseKeyring = (text: string): Ring => {
  const keks = text
    .split(/\s+/)
    .filter((word) => word !== "")
    .map((word, index) => parseEntry(word, index + 1))
  const byId = new Map(keks.map((kek) => [kek.id, kek]))
  if (byId.size < keks.length) throw new InvalidKeyring({ message: "expected every id once; found one twice" })
  return { primary: keks[0], byId }
}

/** Reads a keyring that can seal: one with at least one key. */
export const parseSealingKeyring = (text: string): Effect.Effect<Ring, InvalidKeyring> =>
  Effect.try({
    try: () => {
      const keyring = parseKeyring(text)
      if (keyring.primary === undefined) throw new InvalidKeyring({ message: "expected at least one key; found none" })
      return keyring
    },
    catch: (cause) =>
      cause instanceof InvalidKeyring ? cause : new InvalidKeyring({ message: "expected one id:base64 a line" })
  })

/** A keyring of one new key, as text. Its id, if none is given, tells the day it was made. */
export const generateKeyring = (
  now: Date,
  id = `kek-${now.toISOString().slice(0, 10)}-${randomBytes(3).toString("hex")}`
): string => {
  const bytes = randomBytes(32)
  const line = `${id}:${bytes.toString("base64")}`
  bytes.fill(0)
  return line
}
