import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect, Layer, Option, Redacted } from "effect"
import { KeyringEditor } from "../../../src/crypto/keyring/KeyringEditor.ts"
import * as KeyringLive from "../../../src/wiring/KeyringLive.ts"
import { storesOn } from "../../support/database/stores.ts"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import type { Settings } from "../../../src/wiring/Settings.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { adminClient, migratedDatabase, settingsFor } from "../../support/database/freshDatabase.ts"
import { disguised, ringOf } from "../../support/keys/keyrings.ts"
import { rotationWith, sealUnder } from "../../support/keys/rotating.ts"
import { temporaryDirectory } from "../../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../../support/it.ts"

/** A database whose keyring file has these keys. */
const begin = Effect.fnUntraced(function* (...ids: ReadonlyArray<string>) {
  const url = yield* migratedDatabase
  const file = join(yield* temporaryDirectory, "keyring")
  writeFileSync(file, `${ringOf(...ids)}\n`, { mode: 0o600 })
  const stores = yield* storesOn(url)
  const settings = { ...settingsFor(url), keyring: Option.none(), keyringFile: Option.some(file) }
  const text = () => readFileSync(file, "utf8")
  return { file, settings, stores, text, url, ids: () => Array.from(text().matchAll(/^[^:\n]+/gm), ([id]) => id) }
})

/** The editor is built for each change, as a command builds it. */
const edit = <A, E>(settings: Settings, change: (editor: KeyringEditor["Service"]) => Effect.Effect<A, E>) =>
  Effect.provide(
    Effect.flatMap(KeyringEditor, change),
    Layer.fresh(KeyringLive.editor(settings, Layer.effect(KekRegistry, KekRegistry)))
  )
const addKey = (settings: Settings, id: string | undefined) => edit(settings, ({ add }) => add(id))
const promoteKey = (settings: Settings, kek_id: string) => edit(settings, ({ promote }) => promote(kek_id))
const retireKey = (settings: Settings, kek_id: string) => edit(settings, ({ retire }) => retire(kek_id))

type Change = Effect.Effect<unknown, { readonly message: string }, KekRegistry>
const told = (change: Change) => Effect.map(Effect.flip(change), ({ message }) => message)

describe("the commands that change the keyring file (docs/keys.md, Rotate the keyring)", () => {
  it.live("add a key at the end, promote it to the front and retire the old one (T10)", function* () {
    const { file, ids, settings, stores, text, url } = yield* begin("old")
    const roles = Effect.gen(function* () {
      const { status } = yield* rotationWith(text())
      return (yield* status()).map(({ kek_id, role }) => `${kek_id} ${role}`)
    })
    yield* Effect.gen(function* () {
      yield* sealUnder(ringOf("old"), 1)
      const named = yield* addKey(settings, undefined)
      assert.match(named, /^kek-\d{4}-\d\d-\d\d-[0-9a-f]{6}$/)
      assert.strictEqual(yield* addKey(settings, "next"), "next")
      assert.deepStrictEqual(ids(), ["old", named, "next"])
      assert.deepStrictEqual(yield* roles, ["old primary", `${named} pending`, "next pending"])

      yield* promoteKey(settings, "next")
      assert.deepStrictEqual(ids(), ["next", "old", named])
      assert.deepStrictEqual(yield* roles, ["next primary", "old decrypt-only", `${named} pending`])

      const { rewrap } = yield* rotationWith(text())
      yield* rewrap({ rate: 1_000_000 })
      yield* retireKey(settings, "old")
      yield* retireKey(settings, named)
      assert.deepStrictEqual(ids(), ["next"])
      assert.deepStrictEqual((yield* roles).toSorted(), [`${named} retired`, "next primary", "old retired"].toSorted())
    }).pipe(Effect.provide(stores))
    const told = (yield* eventsIn(yield* adminClient(url))).flatMap((event) =>
      "kek_id" in event ? [`${event.action.replace("keyring.", "")} ${event.kek_id.replace(/^kek-.*/, "named")}`] : []
    )
    assert.deepStrictEqual(
      told.filter((one) => !one.endsWith(" old") || one.startsWith("retire")),
      ["register named", "register next", "promote next", "rewrap next", "retire old", "retire named"]
    )
    assert.strictEqual(statSync(file).mode & 0o777, 0o600)
    assert.deepStrictEqual(readdirSync(dirname(file)), ["keyring"])
  })

  it.live("refuse a key in the wrong state in one sentence, and leave the file unchanged", function* () {
    const { file, settings, stores, text } = yield* begin("new", "old")
    yield* Effect.gen(function* () {
      yield* sealUnder(ringOf("old"), 2)
      assert.strictEqual(yield* addKey(settings, "spare"), "spare")
      writeFileSync(file, `${ringOf("by-hand")}\n`, { flag: "a" })
      const before = text()
      const taken = "That id is or was in use: choose another one."
      const unknown = "There is no such key in the keyring."
      const refusals: ReadonlyArray<readonly [change: Change, sentence: string]> = [
        [addKey(settings, "new"), taken],
        [promoteKey(settings, "other"), unknown],
        [promoteKey(settings, "new"), "Key new is already the primary key."],
        [
          promoteKey(settings, "by-hand"),
          "The database does not know key by-hand: reload the keyring in the service first (SIGHUP)."
        ],
        [retireKey(settings, "other"), unknown],
        [retireKey(settings, "new"), "Key new is the primary key: promote another one first."],
        [
          retireKey(settings, "old"),
          "Key old is still needed (credentials: 2): reload the keyring in every instance (SIGHUP), rewrap, and try again."
        ]
      ]
      for (const [change, sentence] of refusals) assert.strictEqual(yield* told(change), sentence)
      assert.strictEqual(text(), before)

      yield* retireKey(settings, "spare")
      assert.strictEqual(yield* told(addKey(settings, "spare")), taken)
      writeFileSync(file, before)
      assert.strictEqual(yield* told(promoteKey(settings, "spare")), "Key spare is retired: add a new one.")
      yield* retireKey(settings, "spare")
      assert.notInclude(text(), "spare", "what was killed between database and file is finished by the next try")

      const wrong = text().replace(ringOf("old"), disguised("impostor", "old"))
      writeFileSync(file, wrong)
      const differs = "BYOK_KEYRING_FILE: expected the keys that the database knows; found other bytes under old."
      for (const change of [addKey(settings, "more"), promoteKey(settings, "old"), retireKey(settings, "old")]) {
        assert.strictEqual(yield* told(change), differs)
      }
      assert.strictEqual(text(), wrong)
    }).pipe(Effect.provide(stores))
  })

  it.live("refuse to change BYOK_KEYRING, which is no file, and say where to change it", function* () {
    const { settings, stores, text } = yield* begin("old")
    const keyring = Option.some(Redacted.make(text()))
    const inEnvironment: Settings = { ...settings, keyring, keyringFile: Option.none() }
    const sentence =
      "BYOK_KEYRING is not a file, so it cannot be changed here: end the command with - to change the keyring on standard input."
    assert.strictEqual(yield* Effect.provide(told(addKey(inEnvironment, undefined)), stores), sentence)
  })
})
