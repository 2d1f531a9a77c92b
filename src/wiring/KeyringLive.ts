import { existsSync } from "node:fs"
import { join } from "node:path"
import { Cause, Context, Effect, Layer, Option, Redacted, Semaphore } from "effect"
import {
  checkKeyring,
  checkOpening,
  generateKeyring,
  InvalidKeyring,
  Keyring,
  parseKeyring,
  parseSealingKeyring,
  type Ring
} from "../crypto/keyring/Keyring.ts"
import { makeKeyringEditor } from "../crypto/keyring/makeKeyringEditor.ts"
import { writeKeyringFile } from "../crypto/keyring/KeyringFile.ts"
import { readPrivateFile, type UnusableFile } from "../crypto/keyring/SecretFile.ts"
import { KekRegistry } from "../port/KekRegistry.ts"
import { KeyringEditor } from "../port/KeyringEditor.ts"
import { KeyringNotReloaded, KeyringReload } from "../port/KeyringReload.ts"
import { makeMeter } from "../port/Meter.ts"
import { InvalidSetting, namesToken, type Settings } from "./Settings.ts"

const refuse = (message: string) => Effect.fail(new InvalidSetting({ message }))

/** Refuses a keyring, naming the setting it came from. */
const refuseKeyring =
  (setting: string) =>
  ({ message }: InvalidKeyring | UnusableFile) =>
    refuse(`${setting}: ${message}.`)

const readFile = (path: string) => Effect.flatMap(readPrivateFile(path), parseSealingKeyring)

/** The embedded database's own keyring file, created if nothing has been sealed yet. */
const readOwnFile = Effect.fnUntraced(function* (path: string) {
  const sealedBefore = (yield* (yield* KekRegistry).missing([], 1)).length > 0
  if (!existsSync(path) && !sealedBefore) {
    yield* Effect.catch(writeKeyringFile(path, generateKeyring(new Date())), (error) =>
      existsSync(path) ? Effect.void : Effect.fail(error)
    )
  }
  return yield* readFile(path)
})

const environmentKeyring = new InvalidKeyring({
  message: "cannot be reloaded from the environment of a running process; restart with the new value"
})

/** Where the keyring is, the setting that says so, and `form`, which checks it without the database. */
const sourceOf = (settings: Settings) => {
  const { dataDirectory, databaseUrl, keyring, keyringFile } = settings
  const inFile = (setting: string, file: string) => {
    const read = readFile(file)
    return { setting, file, form: read, first: read, reread: read }
  }
  if (Option.isSome(keyring)) {
    const first = parseSealingKeyring(Redacted.value(keyring.value))
    return { setting: "BYOK_KEYRING", file: undefined, form: first, first, reread: Effect.fail(environmentKeyring) }
  }
  if (Option.isSome(keyringFile)) return inFile("BYOK_KEYRING_FILE", keyringFile.value)
  if (namesToken(settings)) {
    const first = Effect.succeed(parseKeyring(""))
    return { setting: "BYOK_PKCS11_KEYS", file: undefined, form: first, first, reread: Effect.fail(environmentKeyring) }
  }
  if (Option.isSome(databaseUrl)) return undefined
  const own = inFile("BYOK_DATA_DIR/keyring", join(dataDirectory, "keyring"))
  return { ...own, form: Effect.void, first: readOwnFile(own.file) }
}

/** Whether anything says where the keyring is. */
export const isSet = (settings: Settings): boolean => sourceOf(settings) !== undefined

/** Where the keyring is; `InvalidSetting` if nothing says so. */
const keyringSource = (settings: Settings) => {
  const source = sourceOf(settings)
  return source === undefined
    ? refuse(
        "BYOK_KEYRING_FILE or BYOK_KEYRING must be set when DATABASE_URL is: `byok keyring generate` makes a keyring."
      )
    : Effect.succeed(source)
}

/** Refuses a missing or malformed keyring without waiting for the database. */
export const validate = (settings: Settings) =>
  Layer.effectDiscard(
    Effect.flatMap(keyringSource(settings), ({ form, setting }) =>
      Effect.catch(Effect.asVoid(form), refuseKeyring(setting))
    )
  )

/** Checks a keyring, after refusing one that shares an id with the token: nothing is recorded under that id. */
const checkedFor = (settings: Settings) => {
  const onToken = Option.getOrElse(settings.pkcs11.keys, () => [])
  const check = namesToken(settings) ? checkOpening : checkKeyring
  return (ring: Ring) => {
    const shared = onToken.find((kek_id) => ring.byId.has(kek_id))
    const message = `expected ids that are not in BYOK_PKCS11_KEYS; found ${shared} in both`
    return shared === undefined ? check(ring) : Effect.fail(new InvalidKeyring({ message }))
  }
}

/** The keyring that the settings name. Each one loaded is checked against the database before it is used. */
export const layer = (settings: Settings) =>
  Layer.effectContext(
    Effect.gen(function* () {
      const { first, reread, setting } = yield* keyringSource(settings)
      const registry = yield* KekRegistry
      const checked = checkedFor(settings)
      const { counter } = yield* makeMeter
      const counts = {
        Success: counter("byok.keyring.reloads", { result: "ok" }),
        Failure: counter("byok.keyring.reloads", { result: "failed" })
      }
      const oneAtATime = yield* Semaphore.make(1)
      let ring = yield* Effect.catch(Effect.flatMap(first, checked), refuseKeyring(setting))
      const reload = Effect.flatMap(reread, checked).pipe(
        Effect.provideService(KekRegistry, registry),
        Effect.map((next) => {
          ring = next
          return { kek_ids: Array.from(next.byId.keys()) }
        }),
        Effect.mapError(({ message }) => new KeyringNotReloaded({ message: `${setting}: ${message}` })),
        Effect.tap(({ kek_ids }) =>
          Effect.logInfo(`Keyring reloaded: ${kek_ids[0]} seals; its keys are ${kek_ids.join(", ")}`)
        ),
        Effect.tapError(({ message }) => Effect.logError(`Keyring not reloaded. ${message}`)),
        Effect.tapDefect((defect) =>
          Effect.logError("Keyring not reloaded: the database does not answer", Cause.die(defect))
        ),
        Effect.onExit(({ _tag }) => Effect.sync(counts[_tag])),
        oneAtATime.withPermits(1)
      )
      return Context.make(Keyring, { current: () => ring }).pipe(Context.add(KeyringReload, { reload }))
    })
  )

const makeEditor = Effect.fnUntraced(function* (settings: Settings) {
  const { file, setting } = yield* keyringSource(settings)
  if (file !== undefined) return yield* makeKeyringEditor(file, setting)
  return yield* new InvalidSetting({
    message: `${setting} is not a file, so it cannot be changed here: change it where it is set, and restart the service.`
  })
})

/** Edits the keyring file that the settings name; a keyring that is not a file is an invalid setting. */
export const editor = (settings: Settings) => Layer.effect(KeyringEditor, makeEditor(settings))
