import { existsSync } from "node:fs"
import { join } from "node:path"
import { Effect, Layer, Option, Redacted } from "effect"
import { generateKeyring, InvalidKeyring, Keyring, parseKeyring } from "./crypto/Keyring.ts"
import { checkKeyring } from "./crypto/KeyringCheck.ts"
import { readKeyringFile, writeKeyringFile } from "./crypto/KeyringFile.ts"
import { KekRegistry } from "./service/KekRegistry.ts"
import { InvalidSetting, namesToken, type Settings } from "./Settings.ts"

const refuse = (message: string) => Effect.fail(new InvalidSetting({ message }))

const named = <A, R>(setting: string, keyring: Effect.Effect<A, InvalidKeyring, R>) =>
  Effect.catch(keyring, ({ message }) => refuse(`${setting}: ${message}.`))

const parse = (text: string) =>
  Effect.try({
    try: () => {
      const keyring = parseKeyring(text)
      if (keyring.primary === undefined) throw new InvalidKeyring({ message: "expected at least one key; found none" })
      return keyring
    },
    catch: (cause) =>
      cause instanceof InvalidKeyring ? cause : new InvalidKeyring({ message: "expected one id:base64 a line" })
  })

const readFile = (path: string) => Effect.flatMap(readKeyringFile(path), parse)

/** The embedded database's own keyring file, made when nothing has been sealed yet. */
const readOwnFile = Effect.fnUntraced(function* (path: string) {
  const sealedBefore = (yield* (yield* KekRegistry).missing([])).length > 0
  if (!existsSync(path) && !sealedBefore) {
    yield* Effect.catch(writeKeyringFile(path, generateKeyring(new Date())), (error) =>
      existsSync(path) ? Effect.void : Effect.fail(error)
    )
  }
  return yield* readFile(path)
})

/** Where the keyring is read from, and the setting that says so. */
const sourceOf = (settings: Settings) => {
  const { dataDirectory, databaseUrl, keyring, keyringFile } = settings
  if (Option.isSome(keyring)) return { setting: "BYOK_KEYRING", source: parse(Redacted.value(keyring.value)) }
  if (Option.isSome(keyringFile)) return { setting: "BYOK_KEYRING_FILE", source: readFile(keyringFile.value) }
  if (namesToken(settings)) return { setting: "BYOK_PKCS11_KEYS", source: Effect.succeed(parseKeyring("")) }
  return Option.isNone(databaseUrl)
    ? { setting: "BYOK_DATA_DIR/keyring", source: readOwnFile(join(dataDirectory, "keyring")) }
    : undefined
}

/** Passes on a keyring that has no id of the token's, to be asked before anything is recorded under that id. */
const besideToken = ({ pkcs11 }: Settings, keyring: Keyring["Service"]) => {
  const both = Option.getOrElse(pkcs11.keys, () => []).find((kek_id) => keyring.byId.has(kek_id))
  const message = `expected ids that BYOK_PKCS11_KEYS does not have; found ${both} in both`
  return both === undefined ? Effect.succeed(keyring) : Effect.fail(new InvalidKeyring({ message }))
}

const read = Effect.fnUntraced(function* (settings: Settings) {
  const found = sourceOf(settings)
  if (found !== undefined) {
    const keyring = Effect.flatMap(found.source, (keyring) => besideToken(settings, keyring))
    return yield* named(found.setting, Effect.flatMap(keyring, checkKeyring))
  }
  return yield* refuse(
    "BYOK_KEYRING_FILE or BYOK_KEYRING must be set when DATABASE_URL is: `byok keyring generate` makes a keyring."
  )
})

/** Reads the keyring from where the settings say and checks its keys against the database before they are used. */
export const layer = (settings: Settings) => Layer.effect(Keyring, read(settings))
