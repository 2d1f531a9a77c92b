import { DateTime, Effect, Option } from "effect"
import { useFromLease } from "../../src/domain/routing/LastUse.ts"
import type { SealedKey } from "../../src/domain/SealedKey.ts"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { CredentialPools, type PoolSize } from "../../src/port/CredentialPools.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { CredentialUse } from "../../src/port/CredentialUse.ts"
import { LeakedKeys } from "../../src/port/LeakedKeys.ts"
import { type ParkingChange, Parkings } from "../../src/port/Parkings.ts"
import { addApiKey, addWorkspace, newHash, newTenant } from "../support/database/newTenant.ts"
import { insertInto, plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { stores } from "../support/database/stores.ts"
import { assert, layerLive } from "../support/it.ts"

const providers = ["openai", "azure"] as const

/** A workspace with a credential, and functions that read its pools. */
const newPool = Effect.gen(function* () {
  const { account_id, workspace_id } = yield* newTenant
  const repository = yield* CredentialRepository
  const pools = yield* CredentialPools
  const owner = { account_id, workspace_id }
  const insert = (provider: (typeof providers)[number], sealed = plainSealedKey(1)) =>
    insertInto(repository)(account_id, { ...plainCredential(workspace_id), provider }, sealed)
  const credential = yield* insert("openai")
  return {
    owner,
    credential,
    insert,
    repository,
    versions: Effect.map(pools.versions(owner, providers), (found) => Option.getOrThrow(found).pools),
    loadAdmitted: (admit: Parameters<typeof pools.load>[3], known?: string) =>
      pools.load(owner, "openai", known, admit),
    /** Loads the pool without rows if its version is the known one. */
    loadFrom: (known: string) => Effect.map(pools.load(owner, "openai", known), Option.getOrThrow),
    load: Effect.map(pools.load(owner, "openai"), (found) => {
      const { rows = assert.fail("no rows"), ...pool } = Option.getOrThrow(found)
      return { ...pool, rows }
    })
  }
})

for (const [name, store] of stores) {
  layerLive(store)(`pools of credentials, ${name}`, (it) => {
    it.effect("are loaded with their version, every row and its sealed key", function* () {
      const { credential, insert, load, versions } = yield* newPool
      const other = yield* insert("openai", plainSealedKey(2))
      yield* insert("azure")
      const { parkings, rows, ...state } = yield* load
      const states = yield* versions
      assert.deepStrictEqual(
        states.map(({ members }) => members),
        [2, 1]
      )
      assert.deepInclude(states[0], { version: state.version, health: state.health, bytes: state.bytes })
      assert.strictEqual(parkings.size, 0)
      const plain = (credential: unknown, sealed: SealedKey) => ({
        credential,
        sealed: { ...sealed, sealed: Array.from(sealed.sealed), wrapped_dek: Array.from(sealed.wrapped_dek) }
      })
      const found = rows.map(({ credential, key_version, sealed }) => ({
        ...plain(credential, sealed),
        key_version
      }))
      const expected = [credential, other].map((credential, index) => ({
        ...plain(credential, plainSealedKey(index + 1)),
        key_version: 1
      }))
      assert.sameDeepMembers(found, expected)
    })

    it.effect("keep their version if a parking is stored again, or an older one after it (Q30)", function* () {
      const { credential, load, owner, versions } = yield* newPool
      const { store } = yield* Parkings
      const parking: ParkingChange = {
        ...{ account_id: owner.account_id, credential_id: credential.id, key_version: 1, model: "a/model" },
        ...{ epoch: 1, cause: "rejected", strikes: 2, remaining: 50_000 }
      }
      yield* store([parking])
      const before = yield* versions
      assert.lengthOf((yield* load).parkings.get(credential.id) ?? [], 1)
      const ended = { ...parking, cause: null, strikes: 0, remaining: null }
      yield* store([{ ...parking, remaining: 40_000, strikes: 1 }])
      yield* store([{ ...parking, epoch: 0, remaining: 90_000 }])
      yield* store([ended])
      yield* store([{ ...parking, key_version: 2, remaining: 90_000 }])
      const use = { account_id: owner.account_id, credential_id: credential.id, ...useFromLease(1) }
      yield* (yield* CredentialUse).store([use])
      assert.deepStrictEqual(yield* versions, before, "a use is no change either (Q19)")
      yield* store([{ ...ended, epoch: 2 }])
      const after = yield* versions
      assert.notDeepEqual(after, before, "control")
      assert.strictEqual(after[0]?.version, before[0]?.version, "no credential is read again")
      yield* store([{ ...ended, epoch: 2 }])
      yield* store([{ ...parking, remaining: 90_000 }])
      assert.deepStrictEqual(yield* versions, after)
    })

    it.effect("contain only the parkings of the current key version (Q26)", function* () {
      const { credential, load, loadFrom, owner, repository } = yield* newPool
      const { store } = yield* Parkings
      const parkingOf = (model: string, key_version: number): ParkingChange => ({
        ...{ account_id: owner.account_id, credential_id: credential.id, key_version, model },
        ...{ epoch: 0, cause: "rejected", strikes: 1, remaining: 5000 }
      })
      const parked = Effect.gen(function* () {
        const whole = yield* load
        const alone = yield* loadFrom(whole.version)
        assert.isUndefined(alone.rows)
        const namesIn = ({ parkings }: Pick<typeof whole, "parkings">) =>
          Array.from(parkings.values()).flatMap((all) => all.map(({ key_version, model }) => `${model} ${key_version}`))
        assert.sameMembers(namesIn(alone), namesIn(whole))
        assert.deepStrictEqual([alone.version, alone.health], [whole.version, whole.health])
        return namesIn(whole).sort()
      })
      yield* store([parkingOf("a", 1), parkingOf("b", 1)])
      assert.deepStrictEqual(yield* parked, ["a 1", "b 1"])
      const sealed = plainSealedKey(2)
      assert.isTrue(
        yield* repository.update(owner.account_id, {
          credential,
          revision: 1,
          sealed,
          key_version: 2,
          fields: ["key"]
        })
      )
      assert.deepStrictEqual(yield* parked, [])
      yield* store([parkingOf("c", 2)])
      assert.deepStrictEqual(yield* parked, ["c 2"])
    })

    it.effect("are loaded only after memory for their parkings and lists is admitted (R4)", function* () {
      const { credential, loadAdmitted, owner, repository } = yield* newPool
      const { store } = yield* Parkings
      const parkingOf = (model: string): ParkingChange => ({
        ...{ account_id: owner.account_id, credential_id: credential.id, key_version: 1, model },
        ...{ epoch: 0, cause: "rejected", strikes: 1, remaining: 5000 }
      })
      const admitted: Array<PoolSize> = []
      const admit = (size: PoolSize) => Effect.sync(() => void admitted.push({ ...size }))
      yield* loadAdmitted(admit)
      const lists = { allowed_models: ["one", "two"], allowed_user_ids: ["one"] }
      const listing = { ...plainCredential(owner.workspace_id), ...lists }
      yield* insertInto(repository)(owner.account_id, listing, plainSealedKey(2))
      yield* store(Array.from({ length: 100 }, (_, n) => parkingOf(`a/model/${String(n).padStart(91, "0")}`)))
      const { version } = Option.getOrThrow(yield* loadAdmitted(admit))
      yield* loadAdmitted(admit, version)
      const parkings = 100 * (200 + 99)
      assert.deepStrictEqual(admitted, [
        { parkings: 0, elements: 0 },
        { parkings, elements: 3 },
        { parkings, elements: 0 }
      ])
      const refused = loadAdmitted(() => Effect.fail(new ServiceUnavailable()))
      assert.instanceOf(yield* Effect.flip(refused), ServiceUnavailable)
    })

    it.effect("change their version or health with every change of the pool, not of another (Q19)", function* () {
      const { credential, insert, load, owner, repository, versions } = yield* newPool
      const { account_id, workspace_id } = owner
      const key = { account_id, workspace_id, credential_id: credential.id, key_version: 1 }
      const { clear, conclude } = yield* LeakedKeys
      const update = repository.update(account_id, {
        credential: { ...credential, name: "renamed" },
        sealed: undefined,
        revision: 1,
        key_version: 1,
        fields: ["name"]
      })
      const changes = [
        insert("openai"),
        update,
        conclude({ keys: [key], searched: 1, park: true }),
        clear(account_id, credential.id),
        repository.delete(account_id, credential.id)
      ]
      const nameOf = ({ health, version }: { readonly health: string; readonly version: string }) =>
        `${version} ${health}`
      const seen = [yield* versions]
      for (const change of changes) {
        yield* change
        const [now, ...others] = yield* versions
        const [before, ...othersBefore] = seen.at(-1) ?? []
        if (now === undefined || before === undefined) return assert.fail("no pool")
        assert.notStrictEqual(nameOf(now), nameOf(before))
        assert.strictEqual(nameOf(yield* load), nameOf(now))
        assert.deepStrictEqual(others, othersBefore)
        seen.push([now, ...others])
      }
      assert.deepStrictEqual(yield* versions, seen.at(-1), "control: it stays without a change")
    })

    it.effect("show that a key is marked as leaked (L16)", function* () {
      const { credential, load, owner } = yield* newPool
      const { conclude } = yield* LeakedKeys
      yield* conclude({
        keys: [{ ...owner, credential_id: credential.id, key_version: 1 }],
        searched: 1,
        park: true
      })
      const marks = (yield* load).parkings.get(credential.id)
      assert.deepStrictEqual(
        marks?.map(({ cause, epoch, key_version, model, remaining, strikes }) => ({
          model,
          key_version,
          epoch,
          cause,
          strikes,
          remaining
        })),
        [{ model: "", key_version: 1, epoch: 0, cause: "leaked", strikes: 0, remaining: null }]
      )
    })

    it.effect("show the current parkings of credentials to their own account only (C8)", function* () {
      const { credential, insert, owner, repository } = yield* newPool
      const { account_id } = owner
      const { id } = credential
      const { find, store } = yield* Parkings
      const [free, marked] = [yield* insert("openai"), yield* insert("azure")]
      const key = { ...owner, credential_id: marked.id, key_version: 1 }
      yield* (yield* LeakedKeys).conclude({ keys: [key], searched: 1, park: true })
      const parkingOf = (model: string, remaining: number | null): ParkingChange => ({
        ...{ account_id, credential_id: id, key_version: 1, model, epoch: 0, remaining },
        ...(remaining === null ? { cause: null, strikes: 0 } : { cause: "rejected", strikes: 1 })
      })
      yield* store([parkingOf("", 50_000), parkingOf("b", 40_000), parkingOf("over", -1), parkingOf("used", null)])
      const ids = [id, free.id, marked.id]
      const found = yield* find(account_id, ids)
      const rows = Array.from(found, ([id, rows]) => [id, ...rows.map(({ cause, model }) => `${model} ${cause}`)])
      const expected = [
        [id, "null rejected", "b rejected"],
        [marked.id, "null leaked"]
      ]
      assert.sameDeepMembers(rows, expected)
      assert.isNull(found.get(marked.id)?.[0]?.until)
      const [whole, model] = found.get(id) ?? []
      assert.closeTo((whole?.until ?? 0) - (model?.until ?? 0), 10_000, 1_000)
      assert.closeTo((whole?.until ?? 0) - (whole?.since ?? 0), 50_000, 1_000)
      assert.strictEqual((yield* find((yield* newTenant).account_id, ids)).size, 0)
      const update = { credential, revision: 1, sealed: plainSealedKey(2), key_version: 2, fields: ["key"] as const }
      assert.isTrue(yield* repository.update(account_id, update))
      assert.deepStrictEqual(Array.from((yield* find(account_id, ids)).keys()), [marked.id])
    })

    it.effect("are empty without a credential, and missing in a foreign or deleted workspace (E19, T6)", function* () {
      const { owner } = yield* newPool
      const stranger = yield* newTenant
      const { load, versions } = yield* CredentialPools
      assert.deepStrictEqual(Option.getOrThrow(yield* load(stranger, "openai")).rows, [])
      const foreign = { account_id: stranger.account_id, workspace_id: owner.workspace_id }
      const unknown = { account_id: owner.account_id, workspace_id: stranger.workspace_id }
      const deleted = { ...owner, workspace_id: yield* addWorkspace(owner.account_id) }
      assert.isTrue(Option.isSome(yield* versions(deleted, providers)), "control")
      yield* (yield* AccountRepository).deleteWorkspace(deleted.workspace_id, yield* DateTime.now)
      for (const one of [foreign, unknown, deleted]) {
        assert.isTrue(Option.isNone(yield* versions(one, providers)))
        assert.isTrue(Option.isNone(yield* load(one, "openai")))
      }
      const { account_id } = owner
      const ofDefault = Option.getOrThrow(yield* versions({ account_id }, providers))
      assert.deepStrictEqual(ofDefault, Option.getOrThrow(yield* versions(owner, providers)))
      assert.strictEqual(ofDefault.workspace_id, owner.workspace_id)
      yield* (yield* AccountRepository).deleteWorkspace(owner.workspace_id, yield* DateTime.now)
      assert.isTrue(Option.isNone(yield* versions({ account_id }, providers)), "the default workspace is deleted")
    })

    it.effect("are found only by API keys of their account that are not revoked (D3, E19, T6)", function* () {
      const { owner } = yield* newPool
      const stranger = yield* newTenant
      const { versions, versionsOfKey } = yield* CredentialPools
      const accounts = yield* AccountRepository
      const api_key_hash = yield* addApiKey(owner.account_id)
      const other = { ...owner, workspace_id: yield* addWorkspace(owner.account_id) }
      const { account_id, workspace_id } = other
      const asked = [{ api_key_hash }, { api_key_hash, workspace_id }, { api_key_hash: stranger.hash, workspace_id }]
      const unknown = { api_key_hash: yield* newHash }
      const answers = yield* Effect.forEach([...asked, unknown], (key) => versionsOfKey(key, providers), {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(answers, [
        Option.some({ account_id, role: "ordinary" as const, versions: yield* versions({ account_id }, providers) }),
        Option.some({ account_id, role: "ordinary" as const, versions: yield* versions(other, providers) }),
        Option.some({ account_id: stranger.account_id, role: "management" as const, versions: Option.none() }),
        Option.none()
      ])
      assert.deepStrictEqual(yield* versionsOfKey({ api_key_hash }, providers), answers[0], "alone")
      yield* accounts.deleteWorkspace(owner.workspace_id, yield* DateTime.now)
      const none = Option.some({ account_id, role: "ordinary" as const, versions: Option.none() })
      assert.deepStrictEqual(yield* versionsOfKey({ api_key_hash }, providers), none)
      yield* accounts.revokeApiKey(api_key_hash, yield* DateTime.now)
      assert.isTrue(Option.isNone(yield* versionsOfKey({ api_key_hash, workspace_id }, providers)))
    })
  })
}
