import { existsSync } from "node:fs"
import { join } from "node:path"
import { Cause, Context, Effect, Layer, Option, Redacted, Semaphore } from "effect"
import { SecureRandom } from "effect/crypto"
import { registerKeyring, generateKeyring, InvalidKeyring, Keyring, parseKeyring } from "../crypto/keyring/Keyring.ts"
import { KeyringEditor, makeKeyringEditor } from "../crypto/keyring/KeyringEditor.ts"
import { createPrivateFile, readPrivateText } from "../runtime/SecretFile.ts"
import * as WrapBudget from "../crypto/WrapBudget.ts"
import { KekRegistry, KeyringNotReloaded, KeyringReload } from "../port/KekRegistry.ts"
import { makeMeter } from "../runtime/Meter.ts"
import { repeatInBackground } from "../runtime/repeatInBackground.ts"
import { refuse, refuseAs } from "./Environment.ts"
import * as Persistence from "./Persistence.ts"
import type { Settings } from "./Settings.ts"

const parse = (text: string) => Effect.fromResult(parseKeyring(text))

/** The source of a keyring in the environment, which cannot be reloaded. */
const inEnvironment = (setting: string, text: Redacted.Redacted) => {
  const message = "cannot be reloaded from the environment of a running process; restart with the new value"
  const read = Effect.suspend(() => parse(Redacted.value(text)))
  return { setting, file: undefined, isDefault: false, read, reread: Effect.fail(new InvalidKeyring({ message })) }
}

/** The source of a keyring in a file, which a reload reads again. */
const inFile = (setting: string, file: string, isDefault = false) => {
  const read = Effect.flatMap(readPrivateText(file), parse)
  return { setting, file, isDefault, read, reread: read }
}

/**
 * The source of the keyring: the setting that names it, its file, if any, how to read it at startup, and how to read it
 * again. `isDefault` marks the file that the service creates for the embedded database.
 */
export const sourceOf = Effect.fnUntraced(function* (settings: Settings) {
  const { dataDirectory, databaseUrl, keyring, keyringFile } = settings
  if (Option.isSome(keyring)) return inEnvironment("BYOK_KEYRING", keyring.value)
  if (Option.isSome(keyringFile)) return inFile("BYOK_KEYRING_FILE", keyringFile.value)
  if (Option.isNone(databaseUrl)) return inFile("BYOK_DATA_DIR/keyring", join(dataDirectory, "keyring"), true)
  return yield* refuse(
    "BYOK_KEYRING_FILE or BYOK_KEYRING must be set when DATABASE_URL is: `byok keyring generate` makes a keyring."
  )
})

/** Refuses a missing or malformed keyring, without the database. Skips the default file, which may not exist yet. */
export const validate = (settings: Settings) =>
  Layer.effectDiscard(
    Effect.flatMap(sourceOf(settings), ({ isDefault, read, setting }) =>
      isDefault ? Effect.void : refuseAs(setting)(Effect.asVoid(read))
    )
  )

/** Creates the keyring file, unless it exists or credentials are stored, whose keys a new keyring would lack. */
const createFirstKeyring = Effect.fnUntraced(function* (file: string) {
  if (existsSync(file) || (yield* (yield* KekRegistry).countExcept([], 1)).length > 0) return
  // Another process may have created the file meanwhile.
  yield* Effect.catch(createPrivateFile(file, generateKeyring(new Date())), (error) =>
    existsSync(file) ? Effect.void : Effect.fail(error)
  )
})

/** The keyring that the settings name, and its reload. Registers a loaded keyring with the database before using it. */
export const layer = (settings: Settings) =>
  Layer.effectContext(
    Effect.gen(function* () {
      const { file, isDefault, read, reread, setting } = yield* sourceOf(settings)
      const registry = yield* KekRegistry
      const { counter } = yield* makeMeter
      const counts = {
        Success: counter("byok.keyring.reloads", { result: "ok" }),
        Failure: counter("byok.keyring.reloads", { result: "failed" })
      }
      const reloadLock = yield* Semaphore.make(1)
      const create = isDefault && file !== undefined ? createFirstKeyring(file) : Effect.void
      let ring = yield* refuseAs(setting)(Effect.flatMap(Effect.andThen(create, read), registerKeyring))
      const reload = Effect.flatMap(reread, registerKeyring).pipe(
        Effect.provideService(KekRegistry, registry),
        Effect.map((next) => {
          ring = next
          return { kek_ids: Array.from(next.byId.keys()) }
        }),
        Effect.tap(({ kek_ids }) => Effect.ignoreCause(registry.announce(kek_ids))),
        Effect.mapError(({ message }) => new KeyringNotReloaded({ message: `${setting}: ${message}` })),
        Effect.tap(({ kek_ids }) =>
          Effect.logInfo(`Keyring reloaded: ${ring.primary.kek_id} seals; its keys are ${kek_ids.join(", ")}`)
        ),
        Effect.tapError(({ message }) => Effect.logError(`Keyring not reloaded. ${message}`)),
        Effect.tapDefect((defect) =>
          Effect.logError("Keyring not reloaded: the database does not answer", Cause.die(defect))
        ),
        Effect.onExit(({ _tag }) => Effect.sync(counts[_tag])),
        reloadLock.withPermits(1)
      )
      return Context.make(Keyring, { current: () => ring }).pipe(Context.add(KeyringReload, { reload }))
    })
  )

/**
 * Announces the keys of this instance to the database every 20 seconds, so that no key is promoted that a running
 * instance lacks. Withdraws the announcement when the instance stops.
 */
export const presence = Layer.effectDiscard(
  Effect.gen(function* () {
    const { current } = yield* Keyring
    const { announce, withdraw } = yield* KekRegistry
    const announcement = Effect.suspend(() => announce(Array.from(current().byId.keys())))
    yield* Effect.addFinalizer(() => Effect.ignoreCause(Effect.timeout(withdraw, "500 millis")))
    yield* Effect.ignoreCause(announcement)
    yield* repeatInBackground("20 seconds", announcement, "The keys of this instance could not be announced")
  })
)

/** The editor of the keyring file that the settings name; fails if the keyring is not in a file. */
export const editor = (settings: Settings) =>
  Layer.effect(
    KeyringEditor,
    Effect.flatMap(sourceOf(settings), ({ file, setting }) =>
      file === undefined
        ? refuse(
            `${setting} is not a file, so it cannot be changed here: change it where it is set, and restart the service.`
          )
        : makeKeyringEditor(file, setting)
    )
  )

/**
 * Provides the keyring, the stores and the budget of wraps. Refuses a missing or malformed keyring before it opens the
 * stores. `user` says who opens them: the service (the default) or a command.
 */
export const withStores = (settings: Settings, user?: Parameters<typeof Persistence.layer>[1]) =>
  WrapBudget.layer.pipe(
    Layer.provideMerge(layer(settings)),
    Layer.provideMerge(Persistence.layer(settings, user)),
    Layer.provideMerge(SecureRandom.layerWebCrypto),
    Layer.provide(validate(settings))
  )
