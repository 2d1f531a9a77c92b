import { Effect, Layer, Option, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { KeyEncryption, makeUnion } from "../crypto/KeyEncryption.ts"
import { registerKeks, checkPrimary, Keyring, makeKeyringEncryption } from "../crypto/keyring/Keyring.ts"
import { makeTokenEncryption, openToken } from "../crypto/pkcs11/Token.ts"
import { readPrivateText } from "../runtime/SecretFile.ts"
import * as WrapBudget from "../crypto/WrapBudget.ts"
import { refuse, refuseAs } from "./Environment.ts"
import * as KeyringLive from "./KeyringLive.ts"
import * as Persistence from "./Persistence.ts"
import { namesToken, type Settings } from "./Settings.ts"

const required = <A>(name: string, value: Option.Option<A>) =>
  Option.match(value, {
    onNone: () => refuse(`${name} must be set when keys are on a PKCS#11 token.`),
    onSome: (value) => Effect.succeed(value)
  })

const pinOf = ({ pin, pinFile }: Settings["pkcs11"]) =>
  Option.isNone(pinFile)
    ? required("BYOK_PKCS11_PIN_FILE or BYOK_PKCS11_PIN", pin)
    : readPrivateText(pinFile.value).pipe(
        Effect.map((text) => Redacted.make(text.trimEnd())),
        refuseAs("BYOK_PKCS11_PIN_FILE")
      )

/** Opens the token that the settings name. An error names the setting at fault. */
const openNamedToken = Effect.fnUntraced(function* (settings: Settings["pkcs11"]) {
  const { deadline, keys, module, pinFile, token } = settings
  const settingNames = {
    module: "BYOK_PKCS11_MODULE",
    token: "BYOK_PKCS11_TOKEN",
    kek_ids: "BYOK_PKCS11_KEYS",
    pin: Option.isSome(pinFile) ? "BYOK_PKCS11_PIN_FILE" : "BYOK_PKCS11_PIN"
  }
  const target = {
    module: yield* required(settingNames.module, module),
    token: yield* required(settingNames.token, token),
    kek_ids: yield* required(settingNames.kek_ids, keys),
    pin: yield* pinOf(settings),
    deadline
  }
  return yield* Effect.catchTags(openToken(target), {
    TokenRefused: ({ message, part }) => refuse(`${settingNames[part]}: ${message}.`),
    KeyStoreUnavailable: ({ reason }) => refuse(`${settingNames.module}: ${reason}.`)
  })
})

const make = Effect.fnUntraced(function* (settings: Settings) {
  const keyring = makeKeyringEncryption(yield* Keyring)
  if (!namesToken(settings)) return keyring
  const token = yield* openNamedToken(settings.pkcs11)
  yield* Effect.andThen(registerKeks(token.keks), checkPrimary(token.keks[0]?.kek_id ?? "")).pipe(
    refuseAs("BYOK_PKCS11_KEYS")
  )
  return makeUnion(makeTokenEncryption(token), keyring)
})

/** Seals and opens with the keyring. If the settings name a token, seals with its keys instead, and opens with both. */
const layer = (settings: Settings) => Layer.effect(KeyEncryption, make(settings))

/**
 * Provides key encryption and the stores, and registers the keys with the database. Refuses a missing or malformed
 * keyring before it opens the stores. `user` says who opens them: the service (the default) or a command.
 */
export const withStores = (settings: Settings, user?: Parameters<typeof Persistence.layer>[1]) =>
  WrapBudget.layer.pipe(
    Layer.provideMerge(layer(settings)),
    Layer.provideMerge(KeyringLive.layer(settings)),
    Layer.provideMerge(Persistence.layer(settings, user)),
    Layer.provideMerge(SecureRandom.layerWebCrypto),
    Layer.provide(KeyringLive.validate(settings))
  )
