import { randomBytes } from "node:crypto"
import { Context, Data, Effect } from "effect"
import { isKekId, kekIdForm } from "../../domain/Identifiers.ts"
import { type Kek, makeKek } from "./Kek.ts"

/** A snapshot of an instance's keys. The first seals and opens; the others, pending or being retired, only open. */
export interface Ring {
  readonly primary: Kek | undefined
  readonly byId: ReadonlyMap<string, Kek>
}

/** The keys that this instance uses. A reload replaces all of them: call `current` once for keys that must match. */
export class Keyring extends Context.Service<Keyring, { readonly current: () => Ring }>()("byok/Keyring") {}

/** Says which key is wrong and what was expected, never what it holds. */
export class InvalidKeyring extends Data.TaggedError("InvalidKeyring")<{ readonly message: string }> {}

const parseEntry = (text: string, position: number): Kek => {
  const refuse = (found: string) => {
    const message = `key ${position}: expected id:base64 of 32 bytes, with an id of ${kekIdForm}; found ${found}`
    return new InvalidKeyring({ message })
  }
  const [id, base64, more] = text.split(":")
  if (!isKekId(id) || base64 === undefined || more !== undefined) {
    throw refuse(`${text.length} characters in another form`)
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

/** The entries of a keyring's text, one `id:base64` each. */
export const entriesOf = (text: string): ReadonlyArray<string> => text.split(/\s+/).filter((word) => word !== "")

/** Parses a keyring: one `id:base64` per line, the primary key first. Throws `InvalidKeyring`. */
export const parseKeyring = (text: string): Ring => {
  const keks = entriesOf(text).map((entry, index) => parseEntry(entry, index + 1))
  const byId = new Map(keks.map((kek) => [kek.id, kek]))
  if (byId.size < keks.length) throw new InvalidKeyring({ message: "expected unique ids; found a duplicate" })
  return { primary: keks[0], byId }
}

/** Parses a keyring that can seal, which takes at least one key. */
export const parseSealingKeyring = (text: string): Effect.Effect<Ring, InvalidKeyring> =>
  Effect.try({
    try: () => {
      const keyring = parseKeyring(text)
      if (keyring.primary === undefined) throw new InvalidKeyring({ message: "expected at least one key; found none" })
      return keyring
    },
    catch: (cause) =>
      cause instanceof InvalidKeyring ? cause : new InvalidKeyring({ message: "expected one id:base64 per line" })
  })

/** Generates the text of a keyring with one new key. The default id includes the date. */
export const generateKeyring = (
  now: Date,
  id = `kek-${now.toISOString().slice(0, 10)}-${randomBytes(3).toString("hex")}`
): string => {
  const bytes = randomBytes(32)
  const line = `${id}:${bytes.toString("base64")}`
  bytes.fill(0)
  return line
}
