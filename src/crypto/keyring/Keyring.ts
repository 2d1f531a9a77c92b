import { createHmac, createSecretKey, hkdfSync, type KeyObject, randomBytes, randomFillSync } from "node:crypto"
import { Context, Data, Effect } from "effect"
import { isKekId, kekIdForm } from "../../domain/Identifiers.ts"
import { KekRegistry } from "../../port/KekRegistry.ts"
import type { KeyEncryption, KekIdentity } from "../KeyEncryption.ts"
import { AuthenticationFailed, UnknownKeyId } from "../../port/Cipher.ts"
import { decrypt, encrypt, type FillRandom } from "../../runtime/AesGcm.ts"

/** A key-encryption key (KEK) of the keyring, and the check value that identifies its bytes. */
export interface Kek {
  readonly id: string
  readonly key: KeyObject
  readonly check_value: Uint8Array
}

/**
 * Makes a KEK from 32 bytes, which it zero-fills. Its check value is 16 bytes of HMAC-SHA-256 over the id, by a key
 * derived from the bytes.
 */
export const makeKek = (id: string, bytes: Uint8Array): Kek => {
  const checkKey = new Uint8Array(hkdfSync("sha256", bytes, "", "byok/kcv", 32))
  const check_value = new Uint8Array(createHmac("sha256", checkKey).update(id).digest().subarray(0, 16))
  const key = createSecretKey(bytes)
  checkKey.fill(0)
  bytes.fill(0)
  return { id, key, check_value }
}

/** The keys of a keyring at one moment. The primary key also seals, unless a PKCS#11 token does; others only open. */
export interface KeyringSnapshot {
  readonly primary: Kek | undefined
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

/** Parses a keyring, which may be empty. Its first entry is the primary key. Throws `InvalidKeyring`. */
export const parseKeyring = (text: string): KeyringSnapshot => {
  const keks = entriesOf(text).map((entry, index) => parseEntry(entry, index + 1))
  const byId = new Map(keks.map((kek) => [kek.id, kek]))
  if (byId.size < keks.length) throw new InvalidKeyring({ message: "expected unique ids; found a duplicate" })
  return { primary: keks[0], byId }
}

/** Parses a keyring that must have a primary key. */
export const parseSealingKeyring = (text: string): Effect.Effect<KeyringSnapshot, InvalidKeyring> =>
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

/** The error of keys whose ids the database has registered with other bytes. */
export const differentBytes = (kek_ids: ReadonlyArray<string>) =>
  new InvalidKeyring({
    message: `expected the keys that the database knows; found other bytes under ${kek_ids.join(", ")}`
  })

/** Registers new keys with the database. Registers none, and fails, if it knows other bytes under one of the ids. */
export const registerKeks = Effect.fnUntraced(function* (keks: ReadonlyArray<KekIdentity>) {
  const differing = yield* (yield* KekRegistry).register(keks)
  if (differing.length > 0) return yield* differentBytes(differing)
})

/** Fails if a primary key is retired: the database refuses credentials that name it. */
export const checkPrimary = Effect.fnUntraced(function* (kek_id: string) {
  const [primary] = yield* (yield* KekRegistry).find([kek_id])
  if (primary?.retired !== true) return
  return yield* new InvalidKeyring({ message: `expected a primary key that is not retired; found ${kek_id}` })
})

/** Registers the keys of a keyring that only opens, with `registerKeks`. Returns the keyring. */
export const registerOpeningKeyring = (ring: KeyringSnapshot) =>
  Effect.as(registerKeks(Array.from(ring.byId.values(), ({ check_value, id }) => ({ kek_id: id, check_value }))), ring)

/** Registers the keys of a keyring that seals, and checks its primary key, if any. Returns the keyring. */
export const registerKeyring = (ring: KeyringSnapshot) =>
  Effect.tap(registerOpeningKeyring(ring), ({ primary }) =>
    primary === undefined ? Effect.void : checkPrimary(primary.id)
  )

/** Wraps and unwraps data keys synchronously in this process, with the current keys of the keyring. */
export const makeKeyringEncryption = (
  { current }: Pick<Keyring["Service"], "current">,
  fill: FillRandom = randomFillSync
): KeyEncryption["Service"] => ({
  primary: () => current().primary?.id,
  keks: () => Array.from(current().byId.values(), ({ check_value, id }) => ({ kek_id: id, check_value })),
  wrap: (kek_id, dek, aad) => {
    const kek = current().byId.get(kek_id)
    if (kek === undefined) return Effect.fail(new UnknownKeyId({ kek_id }))
    const nonce = Buffer.allocUnsafeSlow(12)
    fill(nonce)
    return Effect.succeed(encrypt(kek.key, nonce, dek, aad))
  },
  unwrap: (kek_id, wrapped_dek, aad) => {
    const kek = current().byId.get(kek_id)
    if (kek === undefined) return Effect.fail(new UnknownKeyId({ kek_id }))
    const dek = decrypt(kek.key, wrapped_dek, aad)
    return dek === undefined ? Effect.fail(new AuthenticationFailed()) : Effect.succeed(dek)
  }
})
