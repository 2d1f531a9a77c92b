import { createHmac, createSecretKey, hkdfSync, type KeyObject, randomBytes } from "node:crypto"
import { Context, Data, Effect, Result } from "effect"
import { isKekId, kekIdForm } from "../../domain/Identifiers.ts"
import { KekRegistry } from "../../port/KekRegistry.ts"

/** A key-encryption key (KEK). Two with the same id and the same check value have the same bytes. */
export interface Kek {
  readonly kek_id: string
  readonly key: KeyObject
  readonly check_value: Uint8Array
}

/**
 * Makes a KEK from 32 bytes, which it zero-fills. Its check value is 16 bytes of HMAC-SHA-256 over the id, by a key
 * derived from the bytes.
 */
export const makeKek = (kek_id: string, bytes: Uint8Array): Kek => {
  const checkKey = new Uint8Array(hkdfSync("sha256", bytes, "", "byok/kcv", 32))
  const check_value = new Uint8Array(createHmac("sha256", checkKey).update(kek_id).digest().subarray(0, 16))
  const key = createSecretKey(bytes)
  checkKey.fill(0)
  bytes.fill(0)
  return { kek_id, key, check_value }
}

/** The keys of a keyring at one moment, the primary one first. It also seals; the others only open. */
export interface KeyringSnapshot {
  readonly primary: Kek
  readonly byId: ReadonlyMap<string, Kek>
}

/** The keyring of this instance. A reload replaces it whole, so call `current` once for keys that must match. */
export class Keyring extends Context.Service<Keyring, { readonly current: () => KeyringSnapshot }>()("byok/Keyring") {}

/** An unusable keyring. The message gives a key's position or id and what was expected; never the key's bytes. */
export class InvalidKeyring extends Data.TaggedError("InvalidKeyring")<{ readonly message: string }> {}

const parseEntry = (text: string, position: number): Kek => {
  const refuse = (actual: string) => {
    const message = `key ${position}: expected id:base64 of 32 bytes, with an id of ${kekIdForm}; found ${actual}`
    return new InvalidKeyring({ message })
  }
  const [id, base64, excess] = text.split(":")
  if (!isKekId(id) || base64 === undefined || excess !== undefined) {
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

/** The entries of a keyring's text: `id:base64`, separated by white space. */
export const entriesOf = (text: string): ReadonlyArray<string> => text.split(/\s+/).filter((word) => word !== "")

/** Parses a keyring. Its first entry is the primary key. */
export const parseKeyring = (text: string): Result.Result<KeyringSnapshot, InvalidKeyring> =>
  Result.try({
    try: () => {
      const keks = entriesOf(text).map((entry, index) => parseEntry(entry, index + 1))
      const [primary] = keks
      if (primary === undefined) throw new InvalidKeyring({ message: "expected at least one key; found none" })
      const byId = new Map(keks.map((kek) => [kek.kek_id, kek]))
      if (byId.size < keks.length) throw new InvalidKeyring({ message: "expected unique ids; found a duplicate" })
      return { primary, byId }
    },
    catch: (cause) =>
      cause instanceof InvalidKeyring ? cause : new InvalidKeyring({ message: "expected one id:base64 per line" })
  })

/** Removes a layer of Base64 from the text of a keyring, if there is one: `aws kms decrypt` prints it. */
export const decodeKeyring = (text: string): string => {
  // Each key has a colon, which Base64 never has.
  if (text.includes(":")) return text
  const encoded = text.replace(/\s/g, "")
  const decoded = Buffer.from(encoded, "base64")
  const plain = decoded.toString("base64") === encoded ? decoded.toString("utf8") : text
  decoded.fill(0)
  return plain
}

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

/** The error of keys whose ids the database has registered with other bytes. */
export const differentBytes = (kek_ids: ReadonlyArray<string>) =>
  new InvalidKeyring({
    message: `expected the keys that the database knows; found other bytes under ${kek_ids.join(", ")}`
  })

/**
 * Registers the keys of a keyring with the database, and returns the keyring. Registers none, and fails, if the
 * database knows other bytes under one of the ids. Also fails if the primary key is retired: the database refuses
 * credentials that name a retired key.
 */
export const registerKeyring = Effect.fnUntraced(function* (ring: KeyringSnapshot) {
  const { find, register } = yield* KekRegistry
  const differing = yield* register(Array.from(ring.byId.values()))
  if (differing.length > 0) return yield* differentBytes(differing)
  const { kek_id } = ring.primary
  const [registered] = yield* find([kek_id])
  if (registered?.retired !== true) return ring
  return yield* new InvalidKeyring({ message: `expected a primary key that is not retired; found ${kek_id}` })
})
