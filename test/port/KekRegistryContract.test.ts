import { randomUUID } from "node:crypto"
import { Effect, Exit, Option } from "effect"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import { assert, type It, layerLive } from "../support/it.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { type Ports, stores } from "../support/database/stores.ts"

const check = (fill: string) => new Uint8Array(Buffer.alloc(16, fill))
const freshId = Effect.sync(() => `kek-${randomUUID()}`)

/** Reserves wraps with a keyring of all keys that have reserved before. */
const held: Array<string> = []
const reserve = Effect.fnUntraced(function* (kek_id: string, count: number) {
  held.push(kek_id)
  return Option.getOrUndefined(yield* (yield* KekRegistry).reserve(kek_id, held, count))
})

const contract = (it: It<Ports>) => {
  it.effect("counts wraps per key, and gives concurrent reservations distinct counts", function* () {
    const { register } = yield* KekRegistry
    const first = yield* freshId
    const second = yield* freshId
    yield* register([first, second].map((kek_id) => ({ kek_id, check_value: check("one") })))
    assert.strictEqual(yield* reserve(first, 4096), 4096)
    assert.strictEqual(yield* reserve(first, 1), 4097)
    assert.strictEqual(yield* reserve(second, 5), 5)
    const counts = yield* Effect.forEach(Array.from({ length: 50 }), () => reserve(second, 10), {
      concurrency: "unbounded"
    })
    assert.strictEqual(new Set(counts).size, 50)
    assert.strictEqual(Math.max(...counts.map(Number)), 505)
  })

  it.effect("counts wraps exactly beyond 2^32, also after the key is registered again", function* () {
    const { register } = yield* KekRegistry
    const kek_id = yield* freshId
    yield* register([{ kek_id, check_value: check("one") }])
    for (let block = 0; block < 3; block++) yield* reserve(kek_id, 2 ** 31 - 1)
    yield* register([{ kek_id, check_value: check("one") }])
    assert.strictEqual(yield* reserve(kek_id, 1), 3 * (2 ** 31 - 1) + 1)
  })

  it.effect("reserves no wraps for an unregistered key", function* () {
    assert.isUndefined(yield* reserve(yield* freshId, 1))
  })

  it.effect("lets a new key seal only beside a key that sealed before, or once it is admitted (F3)", function* () {
    const registry = yield* KekRegistry
    const [ours, next, stray] = [yield* freshId, yield* freshId, yield* freshId]
    yield* registry.register([ours, next, stray].map((kek_id) => ({ kek_id, check_value: check("one") })))
    assert.strictEqual(yield* reserve(ours, 1), 1)
    assert.strictEqual(yield* registry.sealPermission(stray, [stray]), "foreign")
    assert.deepStrictEqual(yield* registry.reserve(stray, [stray], 5), Option.none())
    assert.deepStrictEqual(yield* registry.reserve(stray, [stray, next], 5), Option.none(), "next has none either")
    assert.strictEqual(yield* registry.sealPermission(next, [next, ours]), "seals")
    assert.deepStrictEqual(yield* registry.reserve(next, [next, ours], 5), Option.some(5))
    assert.deepStrictEqual(yield* registry.reserve(next, [next], 5), Option.some(10), "it has wraps of its own")
    yield* registry.admit(stray)
    assert.strictEqual(yield* registry.sealPermission(stray, [stray]), "seals")
    assert.deepStrictEqual(yield* registry.reserve(stray, [stray], 5), Option.some(6))
  })

  it.effect("returns known keys as recorded and omits unknown ones", function* () {
    const { find, register } = yield* KekRegistry
    const [first, second, other] = [yield* freshId, yield* freshId, yield* freshId]
    yield* register([first, second].map((kek_id) => ({ kek_id, check_value: check(kek_id) })))
    assert.deepStrictEqual(yield* find([]), [])
    const found = (yield* find([second, other])).map((row) => ({
      ...row,
      check_value: Buffer.from(row.check_value)
    }))
    assert.deepEqual(found, [{ kek_id: second, check_value: Buffer.from(check(second)), retired: false }])
  })

  it.effect("retires a key only if no credential uses it, and then stores no credential under it (T10)", function* () {
    const { find, register, retire } = yield* KekRegistry
    const repository = yield* CredentialRepository
    const { account_id, workspace_id } = yield* newTenant
    const insert = (kek_id: string) =>
      Effect.exit(repository.insert(account_id, plainCredential(workspace_id), { ...plainSealedKey(), kek_id }))
    const [used, unused, another] = [yield* freshId, yield* freshId, yield* freshId]
    yield* register([used, unused, another].map((kek_id) => ({ kek_id, check_value: check(kek_id) })))
    const retired = Effect.map(find([used, unused, another]), (keys) =>
      keys.filter((key) => key.retired).map(({ kek_id }) => kek_id)
    )
    assert.isTrue(Exit.isSuccess(yield* insert(used)))
    assert.strictEqual(yield* retire(used), 1)
    assert.deepStrictEqual(yield* retired, [])
    assert.isTrue(Exit.isSuccess(yield* insert(used)))

    for (const kek_id of [unused, another, unused]) assert.strictEqual(yield* retire(kek_id), 0)
    assert.sameMembers(yield* retired, [unused, another])
    for (const kek_id of [unused, another]) assert.isTrue(Exit.isFailure(yield* insert(kek_id)))
    assert.isTrue(Exit.isSuccess(yield* insert(used)))
  })

  it.effect("counts the credentials under each key that the keyring lacks", function* () {
    const { countExcept } = yield* KekRegistry
    const repository = yield* CredentialRepository
    const { account_id, workspace_id } = yield* newTenant
    const others = (yield* countExcept([])).map(({ kek_id }) => kek_id)
    for (const kek_id of ["kek-b", "kek-a", "kek-b", "kek-c"]) {
      yield* repository.insert(account_id, plainCredential(workspace_id), { ...plainSealedKey(), kek_id })
    }
    assert.deepEqual(yield* countExcept(others), [
      { kek_id: "kek-a", credentials: 1 },
      { kek_id: "kek-b", credentials: 2 },
      { kek_id: "kek-c", credentials: 1 }
    ])
    assert.deepEqual(yield* countExcept([...others, "kek-a", "kek-c", "kek-x"]), [{ kek_id: "kek-b", credentials: 2 }])
    assert.deepStrictEqual(yield* countExcept([...others, "kek-a", "kek-b", "kek-c"]), [])
  })
}

for (const [name, store] of stores) {
  layerLive(store)(`a registry of key-encryption keys ${name}`, contract)
}
