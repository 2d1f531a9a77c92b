import { Clock, Context, Data, Effect } from "effect"
import type { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { KekRegistry } from "../../port/KekRegistry.ts"
import {
  registerKeyring,
  entriesOf,
  generateKeyring,
  type InvalidKeyring,
  differentBytes,
  parseKeyring,
  type KeyringSnapshot
} from "./Keyring.ts"
import type { UnusableFile } from "../../runtime/SecretFile.ts"

/** The state of the keys does not allow a change, or the change would make the keyring unusable. */
class KeyringRefusal extends Data.TaggedError("KeyringRefusal")<{ readonly message: string }> {}

/** Replaces the text of a keyring, wherever it is kept, by the result of `edit`. No change if `edit` fails. */
export type EditText = <E, R>(
  edit: (text: string) => Effect.Effect<string, E, R>
) => Effect.Effect<void, UnusableFile | E, R>

/** Changes a keyring; running instances reload it on SIGHUP. */
export class KeyringEditor extends Context.Service<
  KeyringEditor,
  {
    /** Appends a new key, registers it with the database and returns its id. The default id includes the date. */
    readonly add: (id: string | undefined) => Effect.Effect<string, KeyringRefusal | DatabaseFailure>
    /** Makes a registered key the primary key. The audit event is recorded before the file is replaced. */
    readonly promote: (kek_id: string) => Effect.Effect<void, KeyringRefusal | DatabaseFailure>
    /** Removes a key that no longer wraps anything; from then on the database refuses rows that name it. */
    readonly retire: (kek_id: string) => Effect.Effect<void, KeyringRefusal | DatabaseFailure>
  }
>()("byok/KeyringEditor") {}

const refuse = (message: string) => Effect.fail(new KeyringRefusal({ message }))

const noSuchKey = refuse("There is no such key in the keyring.")

/** The keys of a keyring, and their lines by id, in order: the primary key first. */
interface ParsedText {
  readonly ring: KeyringSnapshot
  readonly lines: ReadonlyMap<string, string>
}

/** Makes the editor of a keyring. `name` begins the sentences about its text. */
export const makeKeyringEditor = Effect.fnUntraced(function* (editText: EditText, name: string) {
  const registry = yield* KekRegistry

  /** Replaces the keyring by the lines that `edit` returns. Changes nothing if `edit` fails. */
  const change = (
    edit: (
      current: ParsedText
    ) => Effect.Effect<Iterable<string>, InvalidKeyring | KeyringRefusal | DatabaseFailure, KekRegistry>
  ) =>
    editText(
      Effect.fnUntraced(function* (text) {
        const ring = yield* Effect.fromResult(parseKeyring(text))
        const entries = entriesOf(text)
        const lines = new Map(Array.from(ring.byId.keys(), (id, index) => [id, entries[index] ?? ""]))
        return `${Array.from(yield* edit({ ring, lines })).join("\n")}\n`
      })
    ).pipe(
      Effect.provideService(KekRegistry, registry),
      Effect.catchTag(["InvalidKeyring", "UnusableFile"], ({ message }) => refuse(`${name}: ${message}.`))
    )

  return KeyringEditor.of({
    add: Effect.fnUntraced(function* (id) {
      const line = generateKeyring(new Date(yield* Clock.currentTimeMillis), id)
      const [kek_id = ""] = line.split(":")
      yield* change(
        Effect.fnUntraced(function* ({ lines }) {
          if (lines.has(kek_id) || (yield* registry.find([kek_id])).length > 0) {
            return yield* refuse("That id is or was in use: choose another one.")
          }
          const newLines = [...lines.values(), line]
          yield* Effect.flatMap(Effect.fromResult(parseKeyring(newLines.join("\n"))), registerKeyring)
          return newLines
        })
      )
      return kek_id
    }),

    promote: (kek_id) =>
      change(
        Effect.fnUntraced(function* ({ lines, ring }) {
          const [kek, line] = [ring.byId.get(kek_id), lines.get(kek_id)]
          if (kek === undefined || line === undefined) return yield* noSuchKey
          if (ring.primary === kek) return yield* refuse(`Key ${kek_id} is already the primary key.`)
          const [registered] = yield* registry.find([kek_id])
          if (registered === undefined) {
            return yield* refuse(
              `The database does not know key ${kek_id}: reload the keyring in the service first (SIGHUP).`
            )
          }
          if (Buffer.compare(registered.check_value, kek.check_value) !== 0) return yield* differentBytes([kek_id])
          if (registered.retired) return yield* refuse(`Key ${kek_id} is retired: add a new one.`)
          const instances = yield* registry.instancesLacking(kek_id)
          if (instances.length > 0) {
            return yield* refuse(
              `Key ${kek_id} is not loaded by ${instances.join(", ")}: reload the keyring in every instance first (SIGHUP). One that did not stop properly counts for a minute.`
            )
          }
          yield* registry.recordPromotion(kek_id)
          // A set keeps only the first of equal lines.
          return new Set([line, ...lines.values()])
        })
      ),

    retire: (kek_id) =>
      change(
        Effect.fnUntraced(function* ({ lines, ring }) {
          if (!ring.byId.has(kek_id)) return yield* noSuchKey
          if (ring.primary.kek_id === kek_id) {
            return yield* refuse(`Key ${kek_id} is the primary key: promote another one first.`)
          }
          // Only a registered key can be retired.
          yield* registerKeyring(ring)
          const credentials = yield* registry.retire(kek_id)
          if (credentials > 0) {
            return yield* refuse(
              `Key ${kek_id} is still needed (credentials: ${credentials}): reload the keyring in every instance (SIGHUP), rewrap, and try again.`
            )
          }
          return Array.from(lines)
            .filter(([id]) => id !== kek_id)
            .map(([, line]) => line)
        })
      )
  })
})
