import { Clock, Effect } from "effect"
import { generateKeyring, InvalidKeyring, type Ring } from "./Keyring.ts"
import { checkKeyring } from "./KeyringCheck.ts"
import { editKeyringFile } from "./KeyringFile.ts"
import { keyringSource, parseRing, refuseKeyring } from "../../wiring/KeyringLive.ts"
import { KeyringRefusal } from "./KeyringRefusal.ts"
import { KekRegistry } from "../../port/KekRegistry.ts"
import { InvalidSetting, type Settings } from "../../wiring/Settings.ts"

const refuse = (message: string) => Effect.fail(new KeyringRefusal({ message }))

/** The keys of the file in its order, each with its line. */
interface Lines {
  readonly ring: Ring
  readonly lines: ReadonlyMap<string, string>
}

/** Replaces the lines of the keyring file, or says where the keyring is to be changed instead. */
const change = Effect.fnUntraced(function* (
  settings: Settings,
  edit: (current: Lines) => Effect.Effect<Iterable<string>, InvalidKeyring | KeyringRefusal, KekRegistry>
) {
  const { file, setting } = yield* keyringSource(settings)
  if (file === undefined) {
    const message = `${setting} is not a file, so it cannot be changed here: change it where it is set, and restart the service.`
    return yield* new InvalidSetting({ message })
  }
  const edited = editKeyringFile(
    file,
    Effect.fnUntraced(function* (text) {
      const ring = yield* parseRing(text)
      const words = text.split(/\s+/).filter((word) => word !== "")
      const lines = new Map(Array.from(ring.byId.keys(), (id, index) => [id, words[index] ?? ""]))
      return `${Array.from(yield* edit({ ring, lines })).join("\n")}\n`
    })
  )
  return yield* Effect.catchTag(edited, ["InvalidKeyring", "UnusableFile"], refuseKeyring(setting))
})

const unknown = refuse("There is no such key in the keyring.")

/** Appends a new key, which the database knows from then on, and answers with its id. */
export const addKey = Effect.fnUntraced(function* (settings: Settings, id: string | undefined) {
  const line = generateKeyring(new Date(yield* Clock.currentTimeMillis), id)
  const [kek_id = ""] = line.split(":")
  yield* change(
    settings,
    Effect.fnUntraced(function* ({ lines }) {
      const { known } = yield* KekRegistry
      if (lines.has(kek_id) || (yield* known([kek_id])).length > 0) {
        return yield* refuse("There is or was a key with that id: choose another one.")
      }
      const added = [...lines.values(), line]
      yield* Effect.flatMap(parseRing(added.join("\n")), checkKeyring)
      return added
    })
  )
  return kek_id
})

/** Makes a key that the database knows the one that seals. Its event is there before the file is replaced. */
export const promoteKey = (settings: Settings, kek_id: string) =>
  change(
    settings,
    Effect.fnUntraced(function* ({ lines, ring }) {
      const [kek, line] = [ring.byId.get(kek_id), lines.get(kek_id)]
      if (kek === undefined || line === undefined) return yield* unknown
      if (ring.primary === kek) return yield* refuse(`Key ${kek_id} is the primary one already.`)
      const { known, promote } = yield* KekRegistry
      const [found] = yield* known([kek_id])
      if (found === undefined) {
        return yield* refuse(
          `The database does not know key ${kek_id}: let the service read the keyring first (SIGHUP).`
        )
      }
      if (Buffer.compare(found.check_value, kek.check_value) !== 0) {
        return yield* new InvalidKeyring({
          message: `expected the keys that the database knows; found other bytes under ${kek_id}`
        })
      }
      if (found.retired) return yield* refuse(`Key ${kek_id} is retired: add a new one.`)
      yield* promote(kek_id)
      return new Set([line, ...lines.values()])
    })
  )

/** Removes a key under which nothing is wrapped; from then on the database refuses whatever names it. */
export const retireKey = (settings: Settings, kek_id: string) =>
  change(
    settings,
    Effect.fnUntraced(function* ({ lines, ring }) {
      if (!ring.byId.has(kek_id)) return yield* unknown
      if (ring.primary?.id === kek_id) {
        return yield* refuse(`Key ${kek_id} is the primary one: promote another one first.`)
      }
      yield* checkKeyring(ring)
      const { retire } = yield* KekRegistry
      const credentials = yield* retire(kek_id)
      if (credentials > 0) {
        return yield* refuse(
          `Key ${kek_id} is still needed (credentials: ${credentials}): let every instance read the keyring (SIGHUP), rewrap, and try again.`
        )
      }
      return Array.from(lines)
        .filter(([id]) => id !== kek_id)
        .map(([, line]) => line)
    })
  )
