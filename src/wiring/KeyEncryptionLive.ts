import { Effect, Layer, Option, Redacted } from "effect"
import { KeyEncryption, makeUnion } from "../crypto/KeyEncryption.ts"
import { makeKeyringEncryption } from "../crypto/keyring/KeyEncryptionKeyringLive.ts"
import { makeTokenEncryption } from "../crypto/pkcs11/KeyEncryptionTokenLive.ts"
import { checkKeks, checkPrimary, Keyring } from "../crypto/keyring/Keyring.ts"
import { readPrivateFile } from "../crypto/keyring/SecretFile.ts"
import { openToken, type TokenRefused } from "../crypto/pkcs11/Token.ts"
import { InvalidSetting, namesToken, type Settings } from "./Settings.ts"

const refuse = (message: string) => new InvalidSetting({ message })

const required = <A>(setting: string, found: Option.Option<A>) =>
  Effect.mapError(Effect.fromOption(found), () => refuse(`${setting} must be set when keys are on a PKCS#11 token.`))

const pinOf = ({ pin, pinFile }: Settings["pkcs11"]) =>
  Option.isNone(pinFile)
    ? required("BYOK_PKCS11_PIN_FILE or BYOK_PKCS11_PIN", pin)
    : readPrivateFile(pinFile.value).pipe(
        Effect.map((text) => Redacted.make(text.trimEnd())),
        Effect.mapError(({ message }) => refuse(`BYOK_PKCS11_PIN_FILE: ${message}.`))
      )

const targetOf = Effect.fnUntraced(function* ({ pkcs11 }: Settings) {
  return {
    module: yield* required("BYOK_PKCS11_MODULE", pkcs11.module),
    token: yield* required("BYOK_PKCS11_TOKEN", pkcs11.token),
    kek_ids: yield* required("BYOK_PKCS11_KEYS", pkcs11.keys),
    pin: yield* pinOf(pkcs11),
    deadline: pkcs11.deadline
  }
})

const settingOf = ({ part }: TokenRefused, { pkcs11 }: Settings) => {
  switch (part) {
    case "module":
      return "BYOK_PKCS11_MODULE"
    case "token":
      return "BYOK_PKCS11_TOKEN"
    case "kek_ids":
      return "BYOK_PKCS11_KEYS"
    case "pin":
      return Option.isSome(pkcs11.pinFile) ? "BYOK_PKCS11_PIN_FILE" : "BYOK_PKCS11_PIN"
  }
}

const make = Effect.fnUntraced(function* (settings: Settings) {
  const keyring = makeKeyringEncryption(yield* Keyring)
  if (!namesToken(settings)) return keyring
  const token = yield* Effect.flatMap(targetOf(settings), openToken).pipe(
    Effect.catchTags({
      TokenRefused: (refused) => Effect.fail(refuse(`${settingOf(refused, settings)}: ${refused.message}.`)),
      KeyStoreUnavailable: ({ reason }) => Effect.fail(refuse(`BYOK_PKCS11_MODULE: ${reason}.`))
    })
  )
  yield* Effect.andThen(checkKeks(token.keks), checkPrimary(token.keks[0]?.kek_id ?? "")).pipe(
    Effect.mapError(({ message }) => refuse(`BYOK_PKCS11_KEYS: ${message}.`))
  )
  return makeUnion(makeTokenEncryption(token), keyring)
})

/** The keyring's keys. If the settings name a token, its keys seal and the keyring's only open. */
export const layer = (settings: Settings) => Layer.effect(KeyEncryption, make(settings))
