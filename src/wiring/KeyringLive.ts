import { existsSync } from "node:fs"
import { join } from "node:path"
import { Context, Effect, Layer, Option, Redacted, Semaphore } from "effect"
import { SecureRandom } from "effect/crypto"
import * as AttemptMacLive from "../crypto/keyring/AttemptMacLive.ts"
import {
  decodeKeyring,
  generateKeyring,
  InvalidKeyring,
  Keyring,
  type KeyringSnapshot,
  parseKeyring,
  registerKeyring
} from "../crypto/keyring/Keyring.ts"
import { type EditText, KeyringEditor, makeKeyringEditor } from "../crypto/keyring/KeyringEditor.ts"
import { type SecretCommand, type SecretCommandFailed, withOutputOf } from "../crypto/keyring/SecretCommand.ts"
import { editKeyringFile } from "../crypto/keyring/KeyringFile.ts"
import { createPrivateFile, readPrivateText, type UnusableFile } from "../runtime/SecretFile.ts"
import * as WrapBudget from "../crypto/WrapBudget.ts"
import type { DatabaseFailure } from "../port/DatabaseFailure.ts"
import { KekRegistry, KeyringNotReloaded, KeyringReload } from "../port/KekRegistry.ts"
import { makeMeter } from "../runtime/Meter.ts"
import { repeatInBackground } from "../runtime/repeatInBackground.ts"
import { refuse, refuseAs } from "./Environment.ts"
import * as Persistence from "./Persistence.ts"
import type { Settings } from "./Settings.ts"

/** Where the keyring comes from. */
interface Source {
  /** The setting that names it, for sentences. */
  readonly setting: string
  /** The file that holds it, if it is in one. */
  readonly file: string | undefined
  /** Whether the service creates the file, for the embedded database. */
  readonly isDefault: boolean
  readonly read: Effect.Effect<KeyringSnapshot, Explained>
  readonly reread: Effect.Effect<KeyringSnapshot, Explained>
}

type Explained = InvalidKeyring | UnusableFile | SecretCommandFailed

const isExplained = (error: Explained | DatabaseFailure): error is Explained => error._tag !== "DatabaseFailure"

const parse = (text: string) => Effect.fromResult(parseKeyring(text))

/** A keyring in the environment, which cannot be reloaded. */
const inEnvironment = (setting: string, text: Redacted.Redacted): Source => {
  const message = "cannot be reloaded from the environment of a running process; restart with the new value"
  const read = Effect.suspend(() => parse(Redacted.value(text)))
  return { setting, file: undefined, isDefault: false, read, reread: Effect.fail(new InvalidKeyring({ message })) }
}

const inFile = (setting: string, file: string, isDefault = false): Source => {
  const read = Effect.flatMap(readPrivateText(file), parse)
  return { setting, file, isDefault, read, reread: read }
}

/** A keyring that a command prints, at each reload anew. */
const ofCommand = (setting: string, command: Redacted.Redacted<SecretCommand>): Source => {
  const read = Effect.suspend(() =>
    withOutputOf(Redacted.value(command), (output) => parseKeyring(decodeKeyring(output.toString("utf8"))))
  ).pipe(Effect.flatMap(Effect.fromResult))
  return { setting, file: undefined, isDefault: false, read, reread: read }
}

/** The source of the keyring that the settings name. */
export const sourceOf = Effect.fnUntraced(function* (settings: Settings) {
  const { dataDirectory, databaseUrl, keyring, keyringCommand, keyringFile } = settings
  if (Option.isSome(keyring)) return inEnvironment("BYOK_KEYRING", keyring.value)
  if (Option.isSome(keyringFile)) return inFile("BYOK_KEYRING_FILE", keyringFile.value)
  if (Option.isSome(keyringCommand)) return ofCommand("BYOK_KEYRING_COMMAND", keyringCommand.value)
  if (Option.isNone(databaseUrl)) return inFile("BYOK_DATA_DIR/keyring", join(dataDirectory, "keyring"), true)
  return yield* refuse(
    "BYOK_KEYRING_FILE, BYOK_KEYRING_COMMAND or BYOK_KEYRING must be set when DATABASE_URL is: `byok keyring generate` makes a keyring."
  )
})

/** The source of the keyring, and the keyring itself, unless the service may have to create its file first. */
const opened = Effect.fnUntraced(function* (settings: Settings) {
  const source = yield* sourceOf(settings)
  return { source, first: source.isDefault ? undefined : yield* refuseAs(source.setting)(source.read) }
})

type Opened = Effect.Success<ReturnType<typeof opened>>

/** Creates the keyring file, unless it exists or credentials are stored, whose keys a new keyring would lack. */
const createFirstKeyring = Effect.fnUntraced(function* (file: string) {
  if (existsSync(file) || (yield* (yield* KekRegistry).countExcept([], 1)).length > 0) return
  // Another process may have created the file meanwhile.
  yield* Effect.catch(createPrivateFile(file, generateKeyring(new Date())), (error) =>
    existsSync(file) ? Effect.void : Effect.fail(error)
  )
})

/** A keyring and its reload. Registers a loaded keyring with the database before using it. */
const layerOf = ({ first, source: { file, read, reread, setting } }: Opened) =>
  Layer.effectContext(
    Effect.gen(function* () {
      const registry = yield* KekRegistry
      const { counter } = yield* makeMeter
      const counts = {
        Success: counter("byok.keyring.reloads", { result: "ok" }),
        Failure: counter("byok.keyring.reloads", { result: "failed" })
      }
      const reloadLock = yield* Semaphore.make(1)
      const create = file === undefined ? Effect.void : createFirstKeyring(file)
      const loaded = first === undefined ? Effect.andThen(create, read) : Effect.succeed(first)
      let ring = yield* Effect.catchIf(Effect.flatMap(loaded, registerKeyring), isExplained, ({ message }) =>
        refuse(`${setting}: ${message}.`)
      )
      const reload = Effect.flatMap(reread, registerKeyring).pipe(
        Effect.provideService(KekRegistry, registry),
        Effect.map((next) => {
          ring = next
          return { kek_ids: Array.from(next.byId.keys()) }
        }),
        Effect.tap(({ kek_ids }) => Effect.ignoreCause(registry.announce(kek_ids))),
        Effect.catchIf(isExplained, ({ message }) => new KeyringNotReloaded({ message: `${setting}: ${message}` })),
        Effect.tap(({ kek_ids }) =>
          Effect.logInfo(`Keyring reloaded: ${ring.primary.kek_id} seals; its keys are ${kek_ids.join(", ")}`)
        ),
        Effect.tapErrorTag("KeyringNotReloaded", ({ message }) => Effect.logError(`Keyring not reloaded. ${message}`)),
        Effect.tapErrorTag("DatabaseFailure", ({ message }) =>
          Effect.logError(`Keyring not reloaded: the database does not answer (${message})`)
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

/** The editor of the keyring file that the settings name. Refuses another source before it opens the stores. */
export const editor = <E, R>(settings: Settings, stores: Layer.Layer<KekRegistry, E, R>) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const { file, setting } = yield* sourceOf(settings)
      if (file === undefined) {
        const advice = "end the command with - to change the keyring on standard input"
        return yield* refuse(`${setting} is not a file, so it cannot be changed here: ${advice}.`)
      }
      yield* opened(settings)
      const editFile: EditText = (edit) => editKeyringFile(file, edit)
      return Layer.provide(Layer.effect(KeyringEditor, makeKeyringEditor(editFile, setting)), stores)
    })
  )

/** An editor of the keyring in `text`, which passes the changed one to `keep`. */
export const filter = (text: Redacted.Redacted, keep: (edited: string) => void) =>
  Layer.effect(
    KeyringEditor,
    makeKeyringEditor(
      (edit) => Effect.map(edit(decodeKeyring(Redacted.value(text))), keep),
      "The keyring on standard input"
    )
  )

/**
 * Provides the keyring, the stores and the budget of wraps. Refuses a missing or malformed keyring before it opens the
 * stores. `user` says who opens them: the service (the default) or a command.
 */
export const withStores = (settings: Settings, user?: Parameters<typeof Persistence.layer>[1]) =>
  Layer.unwrap(
    Effect.map(opened(settings), (keyring) =>
      Layer.merge(WrapBudget.layer, AttemptMacLive.layer).pipe(
        Layer.provideMerge(layerOf(keyring)),
        Layer.provideMerge(Persistence.layer(settings, user)),
        Layer.provideMerge(SecureRandom.layerWebCrypto)
      )
    )
  )
