import { Effect, Layer } from "effect"
import { registerKeyring } from "../../../src/crypto/keyring/Keyring.ts"
import { KekRegistry } from "../../../src/port/KekRegistry.ts"
import { parsed } from "../../support/keys/keyrings.ts"
import * as MemoryStore from "../../support/memory/Memory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { assert, describe, it, itWith } from "../../support/it.ts"

const line = (id: string, fill: string) => `${id}:${Buffer.alloc(32, fill).toString("base64")}`
const keyringOf = (...lines: ReadonlyArray<string>) => parsed(lines.join("\n"))
const recorded = Effect.map(Memory, ({ keks }) => Array.from(keks.keys()))

const onMemory = itWith(MemoryStore.layer)

describe("checking a keyring against the keys that the database knows (T12)", () => {
  onMemory("records new keys, by id and check value only", function* () {
    const keyring = keyringOf(line("kek-1", "one"), line("kek-2", "two"))
    assert.strictEqual(yield* registerKeyring(keyring), keyring)
    const { keks } = yield* Memory
    assert.deepStrictEqual(
      Array.from(keks, ([id, { check_value }]) => [id, check_value]),
      Array.from(keyring.byId, ([id, { check_value }]) => [id, check_value])
    )
  })

  onMemory("accepts known keys in any order, with one added or removed", function* () {
    yield* registerKeyring(keyringOf(line("kek-1", "one"), line("kek-2", "two")))
    yield* registerKeyring(keyringOf(line("kek-2", "two"), line("kek-1", "one")))
    yield* registerKeyring(keyringOf(line("kek-3", "three"), line("kek-2", "two")))
    assert.sameMembers(yield* recorded, ["kek-1", "kek-2", "kek-3"])
  })

  onMemory("refuses other bytes under known ids, names these ids and records nothing", function* () {
    yield* registerKeyring(keyringOf(line("kek-1", "one"), line("kek-2", "two")))
    const wrong = keyringOf(line("kek-0", "new"), line("kek-1", "other"), line("kek-2", "two"), line("kek-9", "new"))
    const refused = yield* Effect.flip(registerKeyring(wrong))
    assert.strictEqual(refused._tag, "InvalidKeyring")
    assert.strictEqual(refused.message, "expected the keys that the database knows; found other bytes under kek-1")
    assert.sameMembers(yield* recorded, ["kek-1", "kek-2"])
    const { message } = yield* Effect.flip(registerKeyring(keyringOf(line("kek-2", "other"), line("kek-1", "other"))))
    assert.match(message, /; found other bytes under kek-[12], kek-[12]$/)
    yield* registerKeyring(keyringOf(line("kek-1", "one")))
  })

  onMemory("refuses a retired first key by name, but accepts retired keys after the first", function* () {
    const { keks } = yield* Memory
    const [one, two] = [line("kek-1", "one"), line("kek-2", "two")]
    yield* registerKeyring(keyringOf(one, two))
    const known = keks.get("kek-1") ?? assert.fail("not recorded")
    keks.set("kek-1", { ...known, retired: true })
    const { message } = yield* Effect.flip(registerKeyring(keyringOf(one, two)))
    assert.strictEqual(message, "expected a primary key that is not retired; found kek-1")
    const passes = keyringOf(two, one)
    assert.strictEqual(yield* registerKeyring(passes), passes)
  })

  it.effect("accepts other bytes if the registry forgets its keys (control)", function* () {
    const check = (keyring: ReturnType<typeof keyringOf>) =>
      Effect.provide(
        registerKeyring(keyring),
        Layer.mock(KekRegistry, { register: () => Effect.succeed([]), find: () => Effect.succeed([]) })
      )
    yield* check(keyringOf(line("kek-1", "one")))
    yield* check(keyringOf(line("kek-1", "other")))
  })
})
