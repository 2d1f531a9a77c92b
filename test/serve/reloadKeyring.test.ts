import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Context, Effect, Layer, Option, Schema } from "effect"
import * as Byok from "../../src/wiring/Byok.ts"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { KeyringReload } from "../../src/port/KekRegistry.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { Readiness } from "../../src/port/Readiness.ts"
import { migratedDatabase, settingsFor } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { keysOf, openedWith } from "../support/keys/rotating.ts"
import { eventually } from "../support/process/eventually.ts"
import { byokScript } from "../support/process/runByok.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

/** An instance whose keyring file can be written, and what it does. */
const begin = Effect.gen(function* () {
  const url = yield* migratedDatabase
  const file = join(yield* temporaryDirectory, "keyring")
  const write = (text: string) => writeFileSync(file, text, { mode: 0o600 })
  write(ringOf("old"))
  const settings = { ...settingsFor(url), keyring: Option.none(), keyringFile: Option.some(file) }
  const instance = yield* Effect.orDie(Layer.build(Layer.fresh(Byok.layerWith(settings))))
  const { account_id } = yield* Effect.flatMap(Accounts, (_) => _.createAccount("n")).pipe(Effect.provide(instance))
  const key = "fake-key-fake-key"
  /** Creates a credential, and answers with the key that it names. */
  const create = Effect.gen(function* () {
    const input = yield* Schema.decodeUnknownEffect(NewCredential)({ provider: "groq", key })
    const { id } = (yield* (yield* Credentials).create(input)).credential
    const found = yield* (yield* CredentialRepository).findSealed(account_id, id)
    return { account_id, id, key, kek_id: Option.getOrThrow(found).sealed.kek_id }
  }).pipe(Effect.provideService(CurrentPrincipal, { kind: "in_process", account_id }), Effect.provide(instance))
  const { reload } = Context.get(instance, KeyringReload)
  const { problems, warnings } = Context.get(instance, Readiness)
  return { url, write, settings, instance, create, reload, problems, warnings }
})

describe("a keyring that is reloaded while the service runs (docs/keys.md, Rotate the keyring)", () => {
  it.live("seals under the new first key and opens under all; readiness reports missing keys", function* () {
    const { create, instance, problems, reload, warnings, write } = yield* begin
    const before = yield* create
    assert.strictEqual(before.kek_id, "old")
    write(ringOf("new", "old"))
    assert.strictEqual((yield* create).kek_id, "old", "not before it is read")
    yield* reload
    const after = yield* create
    assert.strictEqual(after.kek_id, "new")
    assert.deepStrictEqual(yield* problems, [])
    const made = [before, after]
    assert.deepStrictEqual(yield* Effect.provide(openedWith(ringOf("new", "old"), made), instance), keysOf(made))

    write(ringOf("new"))
    yield* reload
    assert.deepStrictEqual(yield* problems, [])
    const missing = "key old is missing from the keyring; credentials that cannot be opened: 2"
    assert.deepStrictEqual(yield* warnings, [missing])
    write(ringOf("new", "old"))
    yield* reload
    assert.deepStrictEqual(yield* warnings, [])
  })

  /** test/crypto/keyring/Keyring.test.ts has what else can be wrong in a file. */
  it.live("is refused with the setting's name if it is invalid, and the old one stays (T12)", function* () {
    const { create, problems, reload, write } = yield* begin
    const wrong = ringOf("impostor").replace("impostor:", "old:")
    for (const [text, sentence] of [
      ["", "expected at least one key; found none"],
      [`${ringOf("new")}\n${wrong}`, "expected the keys that the database knows; found other bytes under old"]
    ] as const) {
      write(text)
      const { message } = yield* Effect.flip(reload)
      assert.strictEqual(message, `BYOK_KEYRING_FILE: ${sentence}`)
      assert.strictEqual((yield* create).kek_id, "old")
      assert.deepStrictEqual(yield* problems, [])
    }
  })

  it.live("is refused if it is set in the environment, with the advice to restart", function* () {
    const { url } = yield* begin
    const other = yield* Effect.orDie(Layer.build(Layer.fresh(Byok.layerWith(settingsFor(url, ringOf("old"))))))
    const { message } = yield* Effect.flip(Context.get(other, KeyringReload).reload)
    assert.strictEqual(
      message,
      "BYOK_KEYRING: cannot be reloaded from the environment of a running process; restart with the new value"
    )
  })
})

describe("SIGHUP", () => {
  it.live("reloads the keyring, and never ends the service, even during start and stop", function* () {
    const file = join(yield* temporaryDirectory, "keyring")
    const write = (...ids: ReadonlyArray<string>) => writeFileSync(file, ringOf(...ids), { mode: 0o600 })
    write("old")
    const settings = { BYOK_KEYRING_FILE: file, DATABASE_URL: yield* migratedDatabase, LOG_LEVEL: "info" }
    const early = "setTimeout(() => process.kill(process.pid, 'SIGHUP'), 200).unref()"
    const program = ["--import", `data:text/javascript,${encodeURIComponent(early)}`, byokScript, "serve"]
    const { ended, signal, stderr } = yield* startService(settings, program)
    write("new", "old")
    yield* signal("SIGHUP")
    yield* eventually("the keyring was read again", () =>
      stderr().includes("Keyring reloaded: new seals; its keys are new, old")
    )
    yield* signal("SIGTERM")
    yield* signal("SIGHUP")
    assert.strictEqual(yield* ended, 0)
  })
})
