import { NodeCrypto } from "@effect/platform-node"
import { Arbitrary, Effect, Layer, Redacted, Result } from "effect"
import { keyFaultIn } from "../../../src/domain/keyFault.js"
import { Cipher, UnknownKeyId } from "../../../src/port/Cipher.ts"
import { LeakedKeys } from "../../../src/port/LeakedKeys.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { LeakResponse, type LeakSearchProgress } from "../../../src/service/credentials/LeakResponse.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { stores } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { accessKey, serviceAccount } from "../../support/keys/cloudKeys.ts"
import { holdsByTheBook } from "../../support/keys/leakSearch.ts"
import { elementOf, givenKey, integer, keyMaterial, oneOf, text } from "../../support/memory/arbitraries.ts"
import { cipherOn, inMemory } from "../../support/memory/inMemory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { create as createAs } from "../../support/service/asTenant.ts"
import { assert, describe, itWith, layerLive } from "../../support/it.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

const keyring = ringOf("kek")

const create = Effect.fnUntraced(function* (provider: string, key: string) {
  const { account_id } = yield* newTenant
  const { id, workspace_id } = yield* createAs({ account_id }, { provider, key })
  return { account_id, workspace_id, id, provider, key }
})

const search = (leak: string, options: { readonly all?: boolean } = {}) =>
  Effect.provide(
    Effect.flatMap(LeakResponse, ({ find }) => find({ text: Redacted.make(leak), ...options })),
    LeakResponse.layer
  )

/** The text with only what create accepts inside an `api_key`. */
const inKey = (secret: string) => `x${secret.replace(/[\p{Cc}\p{Cf}]/gu, "x")}x`

/** JSON of providers without key material, around a secret. */
const shapes: ReadonlyArray<readonly [provider: string, shape: (secret: string) => unknown]> = [
  ["amazon-bedrock", (secret) => ({ ...accessKey, secretAccessKey: `${secret.replace(/[^!-~]/g, "x")}x` })],
  ["amazon-bedrock", (secret) => ({ ...accessKey, more: { deep: [secret] } })],
  ["google-vertex", (secret) => ({ ...serviceAccount, nested: { deep: [secret] } })],
  ["azure", (secret) => [{ model_slug: "a/b", endpoint_url: "https://fake.test", api_key: inKey(secret) }]],
  ["azure", (secret) => [{ api_key: "sk-of-another-deployment-012345" }, { api_key: inKey(secret) }]],
  ["xai", (secret) => [secret]]
]
const jsonKey = Arbitrary.filter(
  Arbitrary.map(
    Arbitrary.all({ secret: text(1, 40), around: elementOf(["", " ", "\n"]), shape: elementOf(shapes) }),
    ({ around, secret, shape: [provider, shape] }) => ({
      provider,
      key: `${around}${JSON.stringify(shape(secret))}${around}`
    })
  ),
  ({ key }) => keyFaultIn(key) === undefined
)
const plain = Arbitrary.filter(givenKey, (key) => !/^\s*[{[]/.test(key))
const stored = oneOf(
  Arbitrary.all({ provider: elementOf(["openai", "fireworks"]), key: oneOf(plain, keyMaterial(givenKey)) }),
  Arbitrary.all({ provider: elementOf(["amazon-bedrock", "azure", "google-vertex", "xai"]), key: plain }),
  jsonKey
)

/** A leaked text: the key, a string in it, or nearly one of these. */
const leakOf = (key: string, part: number, change: number): string => {
  const parts = [key]
  try {
    JSON.parse(key, (_name, value: unknown) => {
      if (typeof value === "string" && value !== "") parts.push(value)
      return value
    })
  } catch {
    // It is plain text.
  }
  const leak = parts[part % parts.length] ?? key
  return [leak, leak, `${leak}\n`, `${leak}x`, leak.slice(1), `${leak.slice(0, 3)}x${leak.slice(4)}`][change] || "x"
}
const cases = Arbitrary.all({
  keys: Arbitrary.array(stored, { minLength: 1, maxLength: 5 }),
  which: integer(0, 4),
  part: integer(0, 7),
  change: integer(0, 5)
})

describe.each(stores.slice(0, 2))("a search for a leaked key, %s", (_name, store) => {
  const service = CredentialsLive.layer.pipe(
    Layer.provideMerge(cipherOn(keyring)),
    Layer.provideMerge(store),
    Layer.provideMerge(NodeCrypto.layerSecureRandom),
    Layer.provide(defaultSettings)
  )

  layerLive(service, { timeout: "60 seconds" })((it) => {
    it.effect.prop(
      "finds exactly the credentials whose key equals or contains it, by labels or by opening all keys (L15)",
      [cases],
      function* ([{ change, keys, part, which }]) {
        const made = yield* Effect.forEach(keys, ({ key, provider }) => create(provider, key), {
          concurrency: "unbounded"
        })
        const leak = leakOf(keys[which % keys.length]?.key ?? "", part, change)
        const expected = made.filter(({ key, provider }) => holdsByTheBook(provider, key, leak)).map(({ id }) => id)
        for (const all of [false, true]) {
          const { found, searched, unopened_total } = yield* search(leak, { all })
          const ids: ReadonlyArray<string> = found.map(({ credential_id }) => credential_id)
          assert.deepStrictEqual(
            made.map(({ id }) => id).filter((id) => ids.includes(id)),
            expected
          )
          assert.isAtLeast(searched, keys.length)
          assert.strictEqual(unopened_total, 0)
        }
      },
      { arbitrary: { runs: 40 } }
    )

    it.effect("opens only keys whose label may match, and names the account of a found key (L15)", function* () {
      const before = yield* search("sk-another-key-of-some-length", { all: true })
      const others = yield* Effect.forEach(["a", "b", "c"], (end) =>
        create("xai", `sk-0123456789-0123456789-${end}end`)
      )
      const json = yield* create("google-vertex", JSON.stringify(serviceAccount))
      const holder = yield* create("anthropic", "sk-9876543210-9876543210-AbCd")
      const { found, opened, searched } = yield* search("sk-9876543210-9876543210-AbCd")
      assert.deepStrictEqual(found, [
        {
          account_id: holder.account_id,
          workspace_id: holder.workspace_id,
          credential_id: holder.id,
          key_version: 1,
          provider: "anthropic",
          label: "sk-...AbCd",
          parked: false
        }
      ])
      assert.strictEqual(searched, before.searched + others.length + 2)
      const everything = yield* search("sk-9876543210-9876543210-AbCd", { all: true })
      assert.strictEqual(everything.opened, searched)
      assert.isAtMost(opened, everything.opened - others.length)
      const [inside] = (yield* search(serviceAccount.private_key)).found.filter(
        ({ credential_id }) => credential_id === json.id
      )
      assert.strictEqual(inside?.credential_id, json.id)
    })
  })
})

const inService = itWith(inMemory())

describe("a search for a leaked key, if a part fails or was altered", () => {
  const key = JSON.stringify(serviceAccount)
  const ids = (leak: string, all: boolean) =>
    Effect.map(search(leak, { all }), ({ found }) => found.map(({ credential_id }) => credential_id))

  inService("misses a key if it skips rows whose label is inconclusive (control)", function* () {
    const { id } = yield* create("google-vertex", key)
    const honest = yield* LeakedKeys
    const byLabelAlone = LeakedKeys.of({
      ...honest,
      scan: (range) =>
        Effect.map(honest.scan(range), (page) => ({
          ...page,
          suspects: page.suspects.filter(({ label }) => range.labels?.includes(label) ?? true)
        }))
    })
    assert.deepStrictEqual(yield* ids(serviceAccount.private_key, false), [id])
    const missed = Effect.provideService(ids(serviceAccount.private_key, false), LeakedKeys, byLabelAlone)
    assert.deepStrictEqual(yield* missed, [])
  })

  inService("finds a key with an altered label only if it opens all keys, as labels are not sealed", function* () {
    const { id } = yield* create("xai", "sk-9876543210-9876543210-AbCd")
    const { credentials } = yield* Memory
    const row = credentials.get(id)
    if (row === undefined) return assert.fail("not stored")
    credentials.set(id, { ...row, credential: { ...row.credential, label: "sk-...Other" } })
    assert.deepStrictEqual(yield* ids("sk-9876543210-9876543210-AbCd", false), [])
    assert.deepStrictEqual(yield* ids("sk-9876543210-9876543210-AbCd", true), [id])
  })

  inService("goes on past keys that cannot be opened, and names them", function* () {
    const altered = yield* create("xai", "fake-key")
    const lost = yield* create("xai", "fake-key")
    const holder = yield* create("xai", "fake-key")
    const { credentials } = yield* Memory
    const row = credentials.get(altered.id)
    if (row === undefined) return assert.fail("not stored")
    credentials.set(altered.id, { ...row, credential: { ...row.credential, disabled: true } })
    const cipher = yield* Cipher
    const forgetful = Cipher.of({
      ...cipher,
      read: (sealed, context, use) =>
        context.includes(`"${lost.id}"`)
          ? Result.fail(new UnknownKeyId({ kek_id: "gone" }))
          : cipher.read(sealed, context, use)
    })
    const seen: Array<LeakSearchProgress> = []
    const onProgress = (progress: LeakSearchProgress) => Effect.sync(() => void seen.push(progress))
    const result = yield* LeakResponse.pipe(
      Effect.flatMap(({ find }) => find({ text: Redacted.make("fake-key"), onProgress })),
      Effect.provide(LeakResponse.layer),
      Effect.provideService(Cipher, forgetful)
    )
    assert.deepStrictEqual(
      result.found.map(({ credential_id }) => credential_id),
      [holder.id]
    )
    assert.deepStrictEqual(
      Object.fromEntries(result.unopened.map(({ credential_id, reason }) => [credential_id, reason])),
      {
        [altered.id]: "the credential or its sealed key was altered",
        [lost.id]: "key gone is not in the keyring"
      }
    )
    assert.deepStrictEqual([result.searched, result.opened, result.unopened_total], [3, 1, 2])
    assert.deepStrictEqual(seen.at(-1), { searched: 3, opened: 1, found: 1, total: 3 })
  })
})
