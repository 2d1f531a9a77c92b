import { Arbitrary, Clock, Effect, Fiber, Layer, Redacted, Result } from "effect"
import { TestClock } from "effect/testing"
import { vi } from "vitest"
import { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import { contextOf } from "../../../src/domain/SealedKey.ts"
import { AuthenticationFailed, Cipher, UnknownKeyId } from "../../../src/port/Cipher.ts"
import { makeMemoryBudget, MemoryBudget } from "../../../src/runtime/MemoryBudget.ts"
import type { Lease } from "../../../src/service/routing/Lease.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { secretPartsOf } from "../../../src/service/tokens/mint.ts"
import { Tokens, TokensOnly } from "../../../src/service/tokens/Tokens.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { accessKey, serviceAccount } from "../../support/keys/cloudKeys.ts"
import { accountId, elementOf, integer } from "../../support/memory/arbitraries.ts"
import { inMemory } from "../../support/memory/inMemory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { changing, create, remove, update } from "../../support/service/asTenant.ts"
import { leaseOf, planOf, requestOf } from "../../support/service/planning.ts"
import { assert, describe, itWith } from "../../support/it.ts"

const mebibyte = 1024 * 1024
const budgetOf = (bytes: number) => Layer.sync(MemoryBudget, () => makeMemoryBudget(bytes))
const routing = Layer.fresh(Layer.provideMerge(Router.layer, Tokens.layer))
const inService = itWith(routing.pipe(Layer.provideMerge(inMemory()), Layer.provideMerge(budgetOf(64 * mebibyte))))
const inTokensOnly = itWith(
  routing.pipe(Layer.provideMerge(inMemory()), Layer.provideMerge(Layer.succeed(TokensOnly, true)))
)

const bedrock = { provider: "amazon-bedrock", key: JSON.stringify(accessKey) }
const vertex = {
  provider: "google-vertex",
  key: JSON.stringify({ ...serviceAccount, region: "us-east5", bucket: "a-bucket" })
}

type Owner = Effect.Success<typeof newTenant>

/** Leases the only key of a provider, in the form that is asked for, for as long as `use` looks at it. */
const leasing = <A>(owner: Owner, provider: string, use: (lease: Lease) => A, keys?: string) =>
  Effect.scoped(Effect.map(leaseOf(owner, { targets: [{ provider }], ...(keys === undefined ? {} : { keys }) }), use))
const tokenOf = (owner: Owner, provider = "amazon-bedrock") =>
  leasing(owner, provider, (lease) => lease.text(), "tokens")
const seen = (lease: Lease) => ({ text: lease.text(), ...lease.token })

const secretsOf = (key: string) => [accessKey.secretAccessKey, serviceAccount.private_key, key]

describe("a lease that asks for tokens", () => {
  inService("holds a token with its expiry and public members, and no part of the key (D58)", function* () {
    const owner = yield* newTenant
    yield* TestClock.setTime(600_000)
    for (const [{ key, provider }, life, cloud] of [
      [bedrock, 900_000, { region: "us-east-1" }],
      [vertex, 3_600_000, { project_id: "fake-project", region: "us-east5", bucket: "a-bucket" }]
    ] as const) {
      yield* create(owner, { provider, key })
      const { text, ...terms } = yield* leasing(owner, provider, seen, "tokens")
      assert.deepStrictEqual<unknown>(terms, { expires_at: 600_000 + life, cloud })
      for (const part of [text, ...secretPartsOf(text)]) {
        for (const secret of secretsOf(key)) assert.notInclude(part, secret)
      }
      for (const keys of ["as_stored", undefined]) {
        assert.deepStrictEqual(yield* leasing(owner, provider, seen, keys), { text: key }, "as stored")
      }
    }
  })

  inService("holds a plain key unchanged, whatever the provider", function* () {
    const owner = yield* newTenant
    for (const provider of ["amazon-bedrock", "google-vertex", "openai", "azure"]) {
      yield* create(owner, { provider, key: "plain-key-0123456789" })
      assert.deepStrictEqual(yield* leasing(owner, provider, seen, "tokens"), { text: "plain-key-0123456789" })
    }
  })

  inService("redacts the token and its parts (Q22)", function* () {
    const owner = yield* newTenant
    for (const { key, provider } of [bedrock, vertex]) {
      const { id } = yield* create(owner, { provider, key })
      const [parts, text] = yield* leasing(
        owner,
        provider,
        (lease) => {
          const token = lease.text()
          const parts = [
            token,
            ...secretPartsOf(token),
            encodeURIComponent(token),
            Buffer.from(token).toString("base64")
          ]
          return [parts, lease.redact(parts.join(" said ")), lease.wipe()] as const
        },
        "tokens"
      )
      for (const part of parts) assert.notInclude(text, part)
      assert.strictEqual(text.split(`<${id}>`).length, parts.length + 1)
    }
  })
})

describe("a cached token", () => {
  const onMemory = itWith(inMemory())

  onMemory("is refused and wiped if its key cannot be verified", function* () {
    let failure: AuthenticationFailed | UnknownKeyId | undefined
    const cipher = changing(Cipher, (cipher) => ({
      ...cipher,
      read: (...args) => (failure === undefined ? cipher.read(...args) : Result.fail(failure)),
      verify: (sealed, context) => (failure === undefined ? cipher.verify(sealed, context) : Result.fail(failure))
    }))
    yield* Effect.gen(function* () {
      const owner = yield* newTenant
      const { id } = yield* create(owner, bedrock)
      const { isCached } = yield* Tokens
      const signer = { ...owner, credential_id: id, key_version: 1, provider: "amazon-bedrock" }
      for (const [error, reason] of [
        [new AuthenticationFailed(), "altered"],
        [new UnknownKeyId({ kek_id: "gone" }), "unknown_key"]
      ] as const) {
        failure = undefined
        yield* tokenOf(owner)
        assert.isTrue(isCached(signer))
        failure = error
        const request = requestOf(owner, { targets: [{ provider: "amazon-bedrock" }], keys: "tokens" })
        const { attempt, past } = yield* Effect.scoped((yield* Router).nextAttempt(request, []))
        assert.isUndefined(attempt)
        assert.deepStrictEqual(
          past.map(({ result }) => result),
          [reason]
        )
        assert.isFalse(isCached(signer), "wiped")
      }
    }).pipe(Effect.provide(Layer.provideMerge(routing, cipher)))
  })

  inService("is wiped when its key is replaced, its credential deleted, or its pool leaves memory", function* () {
    const owner = yield* newTenant
    const { isCached } = yield* Tokens
    const { id } = yield* create(owner, bedrock)
    const signer = (key_version: number) => ({ ...owner, credential_id: id, key_version, provider: "amazon-bedrock" })
    const first = yield* tokenOf(owner)
    yield* update(owner, id, { name: "renamed" })
    yield* create(owner, { ...bedrock, is_fallback: true })
    assert.strictEqual(yield* tokenOf(owner), first, "control: other changes of the pool leave it alone")
    const other = JSON.stringify({ ...accessKey, secretAccessKey: "another-secret-access-key-0123456789" })
    yield* update(owner, id, { key: other })
    assert.notStrictEqual(yield* tokenOf(owner), first)
    assert.isTrue(isCached(signer(2)))
    yield* remove(owner, id)
    yield* planOf(owner, { targets: [{ provider: "amazon-bedrock" }] })
    assert.isFalse(isCached(signer(2)))
  })
})

describe("the keys of a provider with tokens", () => {
  /** A row whose key is JSON that no create accepts now. */
  const store = Effect.fnUntraced(function* (owner: Owner, key: string) {
    const { id } = yield* create(owner, bedrock)
    const { credentials } = yield* Memory
    const { seal } = yield* Cipher
    const row = credentials.get(id)
    if (row === undefined) return assert.fail("not stored")
    const context = contextOf({ ...row.credential, account_id: owner.account_id })
    credentials.set(id, { ...row, sealed: yield* seal(Redacted.make(key), context) })
    return id
  })
  const unsigning = JSON.stringify({ accessKeyId: "AKIAFAKE", secretAccessKey: "fake-secret-0123456789" })

  inService("are leased as stored without TOKENS_ONLY if they cannot sign", function* () {
    const owner = yield* newTenant
    yield* store(owner, unsigning)
    assert.deepStrictEqual(yield* leasing(owner, "amazon-bedrock", seen, "tokens"), { text: unsigning })
  })

  inTokensOnly("are excluded from plans under TOKENS_ONLY if they cannot sign, with the reason no_token", function* () {
    const owner = yield* newTenant
    const id = yield* store(owner, unsigning)
    const { providers, steps } = yield* planOf(owner, { targets: [{ provider: "amazon-bedrock" }] })
    assert.deepStrictEqual(
      steps.map(({ _tag }) => _tag),
      ["Shared"],
      "its policy is known: it forbids nothing"
    )
    assert.deepStrictEqual<unknown>(providers[0]?.credentials, [
      { credential_id: id, section: "prioritized", position: null, exclusions: [{ reason: "no_token" }] }
    ])
  })

  inTokensOnly(
    "are leased under TOKENS_ONLY only as tokens, but plain keys of other providers as stored (D58)",
    function* () {
      const owner = yield* newTenant
      yield* create(owner, bedrock)
      for (const keys of ["tokens", "as_stored", undefined]) {
        const text = yield* leasing(owner, "amazon-bedrock", (lease) => lease.text(), keys)
        assert.match(text, /^bedrock-api-key-/)
      }
      yield* create(owner, { provider: "xai", key: "plain-key-0123456789" })
      assert.strictEqual(yield* leasing(owner, "xai", (lease) => lease.text()), "plain-key-0123456789")
    }
  )

  itWith(inMemory().pipe(Layer.provideMerge(Layer.succeed(TokensOnly, true))))(
    "are refused at the lease under TOKENS_ONLY if the plan did not notice that they cannot sign",
    function* () {
      let isChanged = false
      const { secretAccessKey: _, ...unsigned } = accessKey
      const cipher = changing(Cipher, (cipher) => ({
        ...cipher,
        read: (sealed, context, use) =>
          cipher.read(sealed, context, (key) => use(isChanged ? Buffer.from(JSON.stringify(unsigned)) : key))
      }))
      yield* Effect.gen(function* () {
        const owner = yield* newTenant
        yield* create(owner, bedrock)
        const { nextAttempt } = yield* Router
        const change = { targets: [{ provider: "amazon-bedrock" }] }
        yield* planOf(owner, change)
        isChanged = true
        const { attempt, past } = yield* Effect.scoped(nextAttempt(requestOf(owner, change), []))
        assert.isUndefined(attempt, "nor is shared capacity used")
        assert.deepStrictEqual(
          past.map(({ result }) => result),
          ["no_token"]
        )
        isChanged = false
        yield* create(owner, { provider: "xai", key: "plain-key-0123456789" })
        const other = { targets: [{ provider: "xai" }] }
        yield* planOf(owner, other)
        isChanged = true
        const { past: pastToo } = yield* Effect.scoped(nextAttempt(requestOf(owner, other), []))
        assert.deepStrictEqual(
          pastToo.map(({ result }) => result),
          ["no_token"]
        )
      }).pipe(Effect.provide(Layer.provideMerge(routing, cipher)))
    }
  )
})

const id = (n: number) => CredentialId.make(`019ad5a0-0000-7000-8000-00000000000${n}`)
const inTokens = itWith(Layer.fresh(Tokens.layer).pipe(Layer.provideMerge(budgetOf(mebibyte))))

describe("the cache of tokens", () => {
  const signer = (n: number) => ({
    account_id: AccountId.make("00000000-0000-7000-8000-00000000000a"),
    ...{ credential_id: id(n), key_version: 1, provider: "amazon-bedrock" }
  })
  const key = Buffer.from(bedrock.key)
  const ignore = () => {}

  inTokens("zeroes each copy of a token after passing it on", function* () {
    const { open, sign } = yield* Tokens
    const copies: Array<Uint8Array> = []
    const fill = (bytes: Uint8Array) => {
      assert.match(Buffer.from(bytes).toString(), /^bedrock-api-key-/)
      copies.push(bytes)
    }
    assert.deepStrictEqual([yield* sign(signer(0), key, fill), open(signer(0), fill)], [true, true])
    assert.deepStrictEqual(
      copies.map((copy) => copy.every((byte) => byte === 0)),
      [true, true]
    )
  })

  inTokens("passes an API key on unchanged, and refuses a key that cannot sign", function* () {
    const { isCached, sign } = yield* Tokens
    const texts: Array<string> = []
    const fill = (bytes: Uint8Array) => void texts.push(Buffer.from(bytes).toString())
    assert.isTrue(yield* sign(signer(0), Buffer.from("ABSKfake0123456789=="), fill))
    assert.isFalse(yield* sign(signer(0), Buffer.from("plain-key-0123456789"), fill))
    assert.isFalse(yield* sign({ ...signer(0), provider: "xai" }, Buffer.from(vertex.key), fill))
    const vertexSigner = { ...signer(0), provider: "google-vertex" }
    const unusable = "-----BEGIN PRIVATE KEY-----\nfake\n-----END PRIVATE KEY-----\n"
    const cut = JSON.stringify({ ...JSON.parse(vertex.key), private_key: unusable })
    assert.isFalse(yield* sign(vertexSigner, Buffer.from(cut), fill))
    assert.deepStrictEqual(texts, ["ABSKfake0123456789=="])
    assert.isFalse(isCached(signer(0)))
  })

  inTokens("signs once for concurrent leases of a key, although some are interrupted", function* () {
    const { sign } = yield* Tokens
    const vertexSigner = { ...signer(0), provider: "google-vertex" }
    const clock = yield* Clock.Clock
    let seconds = 0
    vi.spyOn(clock, "currentTimeMillisUnsafe").mockImplementation(() => 1000 * (seconds += 1))
    const texts = new Set<string>()
    const signing = Effect.suspend(() =>
      sign(vertexSigner, Buffer.from(vertex.key), (bytes) => void texts.add(Buffer.from(bytes).toString()))
    )
    const fibers = yield* Effect.replicateEffect(Effect.forkChild(signing, { startImmediately: true }), 20)
    for (const n of [1, 5]) yield* Fiber.interrupt(fibers[n] ?? assert.fail())
    assert.strictEqual(seconds, 1, "control: all but the first wait")
    for (const [n, fiber] of fibers.entries()) if (n !== 1 && n !== 5) assert.isTrue(yield* Fiber.join(fiber))
    assert.strictEqual(texts.size, 1)
    vi.restoreAllMocks()
  })

  inTokens("keeps a token for 80 % of its life, and then wipes it without a request", function* () {
    const { isCached, sign } = yield* Tokens
    const { cached } = yield* MemoryBudget
    yield* sign(signer(0), key, ignore)
    yield* TestClock.adjust("719 seconds")
    assert.isAbove(cached(), 0)
    assert.isTrue(isCached(signer(0)))
    yield* TestClock.adjust("1 second")
    assert.strictEqual(cached(), 0)
  })

  inTokens("serves no token after 80 % of its life, nor one from the future if the clock was set back", function* () {
    const { isCached, sign } = yield* Tokens
    yield* TestClock.setTime(5_000)
    yield* sign(signer(0), key, ignore)
    yield* TestClock.setTime(4_999)
    assert.isFalse(isCached(signer(0)))
    yield* sign(signer(1), key, ignore)
    yield* TestClock.setTime(4_000 + 719_999)
    assert.isTrue(isCached(signer(1)), "control")
    yield* TestClock.setTime(4_000 + 720_000)
    assert.isFalse(isCached(signer(1)))
  })

  inTokens("evicts the least recently used token", function* () {
    const { isCached, open, sign } = yield* Tokens
    const { cached, hold } = yield* MemoryBudget
    for (const n of [0, 1]) yield* sign(signer(n), key, ignore)
    open(signer(0), ignore)
    const others = hold("another", "gateway")
    assert.isTrue(others.tryTake(mebibyte - cached() + 1))
    assert.deepStrictEqual(
      [0, 1].map((n) => isCached(signer(n))),
      [true, false]
    )
    others.giveBack()
  })

  inTokens("is emptied when the service stops", function* () {
    const { cached } = yield* MemoryBudget
    const service = Effect.gen(function* () {
      const { sign } = yield* Tokens
      yield* sign(signer(0), key, ignore)
      assert.isAbove(cached(), 0)
    })
    yield* Effect.provide(service, Layer.fresh(Tokens.layer))
    assert.strictEqual(cached(), 0)
  })
})

describe("cached tokens, compared with a simple model", () => {
  const keys = [
    { provider: "amazon-bedrock", key: JSON.stringify(accessKey), life: 900 },
    { provider: "google-vertex", key: JSON.stringify(serviceAccount), life: 3600 }
  ] as const
  const act = Arbitrary.all({
    kind: elementOf(["sign", "sign", "open", "open", "pass", "pass", "pass", "wipe", "retain", "evict"] as const),
    n: integer(0, 1),
    version: elementOf([1, 1, 1, 2]),
    seconds: integer(1, 3000)
  })

  inTokens.prop(
    "are served for their key version until 80 % of their life, and never after being wiped",
    [Arbitrary.array(act, { minLength: 30, maxLength: 40 }), accountId],
    function* ([acts, account_id]) {
      const { open, wipePool, sign, wipe } = yield* Tokens
      const { cached, hold } = yield* MemoryBudget
      const reference = new Map<number, { readonly version: number; readonly at: number; readonly text: string }>()
      for (const n of [0, 1]) wipe(id(n))
      let now = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
      for (const { kind, n, seconds, version } of acts) {
        const { key, life, provider } = keys[n % 2] ?? keys[0]
        const signer = { account_id, credential_id: id(n), key_version: version, provider }
        const expected = reference.get(n)
        const isCached = expected?.version === version && now < expected.at + 0.8 * life * 1000
        let text: string | undefined
        const fill = (bytes: Uint8Array) => void (text = Buffer.from(bytes).toString())
        if (kind === "open") {
          assert.strictEqual(open(signer, fill), isCached)
          assert.strictEqual(text, isCached ? expected.text : undefined)
          if (!isCached) reference.delete(n)
        } else if (kind === "sign") {
          assert.isTrue(yield* sign(signer, Buffer.from(key), fill))
          if (isCached) assert.strictEqual(text, expected.text)
          else reference.set(n, { version, at: Math.floor(now / 1000) * 1000, text: String(text) })
        } else if (kind === "pass") {
          yield* TestClock.adjust(`${seconds} seconds`)
          now += seconds * 1000
        } else if (kind === "wipe") {
          wipe(id(n))
          reference.delete(n)
        } else if (kind === "retain") {
          const pool = [0, 1].map((one) => ({ credential: { id: id(one) }, key_version: version }))
          wipePool(pool as never, new Map([[id(n), { key_version: version }]]))
          for (const one of [0, 1]) if (one !== n) reference.delete(one)
        } else {
          const all = hold(account_id, "gateway")
          assert.isTrue(all.tryTake(mebibyte))
          reference.clear()
          all.giveBack()
        }
        const fresh = Array.from(reference).filter(
          ([one, { at }]) => now < at + 0.8 * (keys[one % 2] ?? keys[0]).life * 1000
        )
        assert.isAtLeast(cached(), fresh.length * 1024)
        assert.isAtMost(cached(), reference.size * 4096)
      }
    },
    { arbitrary: { runs: 100 } }
  )
})
