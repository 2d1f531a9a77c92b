import { inspect } from "node:util"
import { Arbitrary, Clock, DateTime, Effect, Exit, Fiber, Layer, Redacted, Semaphore } from "effect"
import { TestClock } from "effect/testing"
import * as CipherLive from "../../src/crypto/CipherLive.ts"
import { KeyEncryption } from "../../src/crypto/KeyEncryption.ts"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { makeTokenEncryption, type Token } from "../../src/crypto/pkcs11/Token.ts"
import { WrapBudget } from "../../src/crypto/WrapBudget.ts"
import { AccountId } from "../../src/domain/Identifiers.ts"
import { contextOf, type SealedKey, type BoundCredential } from "../../src/domain/SealedKey.ts"
import { Cipher, KeyStoreUnavailable, UnknownKeyId } from "../../src/port/Cipher.ts"
import { CurrentDeadline } from "../../src/runtime/Deadline.ts"
import {
  accountId,
  bytes,
  canary,
  credentialId,
  elementOf,
  rawKey,
  sealingContext,
  workspaceId
} from "../support/memory/arbitraries.ts"
import * as CipherPlain from "../support/keys/CipherPlain.ts"
import { disguised, fixedKeyring, keyringEncryption, ringOf } from "../support/keys/keyrings.ts"
import { leakSearch } from "../support/keys/leakSearch.ts"
import { flipped } from "../support/keys/sealing.ts"
import { cipherOn } from "../support/memory/inMemory.ts"
import { assert, describe, it } from "../support/it.ts"

const cipherWith = (...given: Parameters<typeof cipherOn>) => Effect.provide(Cipher, cipherOn(...given))
const plainCipher = Effect.provide(Cipher, CipherPlain.layer)
const ring = ringOf("kek-1", "kek-2")
const key = Redacted.make("fake-key-0123456789-AbCd")

const opened = (cipher: Cipher["Service"], sealed: SealedKey, context: BoundCredential) =>
  Effect.map(cipher.open(sealed, contextOf(context)), Redacted.value)

/** The tag of the error that every opening operation fails with, or "opened". */
const outcome = Effect.fnUntraced(function* (cipher: Cipher["Service"], sealed: SealedKey, bound: BoundCredential) {
  const context = contextOf(bound)
  const { matches, open, reseal, verify } = cipher
  const uses: ReadonlyArray<Effect.Effect<unknown, { readonly _tag: string }>> = [
    open(sealed, context),
    verify(sealed, context),
    matches(sealed, context, key),
    reseal(sealed, context, context)
  ]
  const tags = yield* Effect.forEach(uses, Effect.match({ onFailure: ({ _tag }) => _tag, onSuccess: () => "opened" }))
  return Array.from(new Set(tags)).join(" or ")
})

/** Every context that differs from `one` in a single bound column: by another row's value, or by an edit. */
const altered = (one: BoundCredential, other: BoundCredential): ReadonlyArray<BoundCredential> => {
  const lists = (list: ReadonlyArray<string> | null) =>
    list === null
      ? [[], ["x"]]
      : [null, [], [...list, "x"], list.slice(1), list.toReversed(), [list.join(",")], list.map((text) => `${text} `)]
  const edits: ReadonlyArray<BoundCredential> = [
    ...Object.keys(one).map((column) => ({ ...one, [column]: Reflect.get(other, column) as unknown })),
    { ...one, disabled: !one.disabled },
    { ...one, is_fallback: !one.is_fallback },
    { ...one, is_required: !one.is_required },
    { ...one, is_byok_only: !one.is_byok_only },
    ...lists(one.allowed_models).map((allowed_models) => ({ ...one, allowed_models })),
    ...lists(one.allowed_user_ids).map((allowed_user_ids) => ({ ...one, allowed_user_ids })),
    { ...one, allowed_models: one.allowed_user_ids, allowed_user_ids: one.allowed_models },
    { ...one, allowed_api_key_hashes: null },
    { ...one, allowed_api_key_hashes: one.allowed_api_key_hashes?.slice(1) ?? [] },
    ...([null, "global", "europe", "us"] as const).map((declared_region) => ({ ...one, declared_region })),
    ...[null, true, false].map((declared_zdr) => ({ ...one, declared_zdr }))
  ]
  return edits.filter((context) => JSON.stringify(context) !== JSON.stringify(one))
}

/** Two rows of one account, of one workspace, or of different tenants. */
const twoRows = Arbitrary.map(
  Arbitrary.all({
    one: sealingContext,
    other: sealingContext,
    ids: Arbitrary.all({ account_id: accountId, workspace_id: workspaceId, id: credentialId }),
    shared: elementOf<ReadonlyArray<string>>([[], ["account_id"], ["account_id", "workspace_id"]]),
    keys: Arbitrary.all([rawKey, rawKey])
  }),
  ({ ids, keys, one, other, shared }) => {
    const same = Object.fromEntries(shared.map((name) => [name, Reflect.get(one, name) as unknown]))
    return { one, other: { ...other, ...ids, ...same }, keys }
  }
)
const [rows] = Effect.runSync(Arbitrary.sampleEffect(twoRows, { count: 1, seed: 1 }))
assert(rows !== undefined)
const { one: bound } = rows

describe("a sealed key whose database row was altered (T2)", () => {
  it.effect.prop(
    "does not open with any bound column changed, or with any part of another seal",
    [twoRows],
    function* ([{ keys, one, other }]) {
      const cipher = yield* cipherWith(ring)
      const [sealed, otherSealed] = [
        yield* cipher.seal(keys[0], contextOf(one)),
        yield* cipher.seal(keys[1], contextOf(other))
      ]
      assert.strictEqual(yield* opened(cipher, sealed, one), Redacted.value(keys[0]))
      assert.strictEqual(yield* opened(cipher, otherSealed, other), Redacted.value(keys[1]))
      for (const context of altered(one, other)) {
        assert.strictEqual(yield* outcome(cipher, sealed, context), "AuthenticationFailed")
      }
      for (const moved of [
        otherSealed,
        { ...sealed, sealed: otherSealed.sealed },
        { ...sealed, sealed: flipped(sealed.sealed, 16) },
        { ...sealed, wrapped_dek: otherSealed.wrapped_dek },
        { ...sealed, kek_id: "kek-2" }
      ]) {
        assert.strictEqual(yield* outcome(cipher, moved, one), "AuthenticationFailed")
      }
      assert.strictEqual(yield* outcome(cipher, { ...sealed, kek_id: "kek-3" }, one), "UnknownKeyId")
    },
    // Each run alters every column.
    { arbitrary: { runs: 30 } }
  )

  it.effect.prop("opens with other name, label, sort_order and created_at", [twoRows], function* ([{ keys, one }]) {
    const cipher = yield* cipherWith(ring)
    const unbound = { name: "before", label: "***...***", sort_order: 0, created_at: DateTime.makeUnsafe(0) }
    const sealed = yield* cipher.seal(keys[0], contextOf({ ...one, ...unbound }))
    const changed = { name: null, label: "sk-...AbCd", sort_order: 7, created_at: DateTime.makeUnsafe(1) }
    for (const context of [one, { ...one, ...unbound }, { ...one, ...changed }]) {
      assert.strictEqual(yield* opened(cipher, sealed, context), Redacted.value(keys[0]))
    }
  })

  it.effect("opens with every alteration if the cipher binds no column (control)", function* () {
    const cipher = yield* plainCipher
    const sealed = yield* cipher.seal(rows.keys[0], contextOf(rows.one))
    for (const context of altered(rows.one, rows.other)) {
      assert.strictEqual(yield* outcome(cipher, sealed, context), "opened")
    }
  })
})

type Rows = typeof rows

/** Whether a resealed key opens under the new context only, and keeps nothing of the old seal. */
const isSealedAgain = Effect.fnUntraced(function* (cipher: Cipher["Service"], { keys: [key], one, other }: Rows) {
  const old = yield* cipher.seal(key, contextOf(one))
  const made = yield* cipher.reseal(old, contextOf(one), contextOf(other))
  const others = [yield* outcome(cipher, made, one), yield* outcome(cipher, { ...made, sealed: old.sealed }, other)]
  const bytes = Buffer.concat([made.sealed, made.wrapped_dek])
  return (
    (yield* opened(cipher, made, other)) === Redacted.value(key) &&
    others.every((how) => how === "AuthenticationFailed") &&
    !bytes.includes(Buffer.from(old.sealed.subarray(2, 46))) &&
    !bytes.includes(Buffer.from(old.wrapped_dek.subarray(0, 12)))
  )
})

describe("resealing a key whose policy changes (L8)", () => {
  it.effect.prop("seals the key to its new context under a new data key", [twoRows], function* ([rows]) {
    assert.isTrue(yield* isSealedAgain(yield* cipherWith(ring), rows))
  })

  it.effect("fails this check if the cipher keeps the old context (control)", function* () {
    const lazy: Cipher["Service"] = { ...(yield* cipherWith(ring)), reseal: Effect.succeed }
    for (const broken of [yield* plainCipher, lazy]) {
      assert.isFalse(yield* isSealedAgain(broken, rows).pipe(Effect.orElseSucceed(() => false)))
    }
  })
})

describe("a sealed key", () => {
  it.effect.prop("matches only exactly the same key (L6)", [twoRows], function* ([{ keys, one }]) {
    const [key, other] = keys
    const cipher = yield* cipherWith(ring)
    const sealed = yield* cipher.seal(key, contextOf(one))
    assert.isTrue(yield* cipher.matches(sealed, contextOf(one), key))
    assert.strictEqual(
      yield* cipher.matches(sealed, contextOf(one), other),
      Redacted.value(key) === Redacted.value(other)
    )
    assert.isFalse(yield* cipher.matches(sealed, contextOf(one), Redacted.make(`${Redacted.value(key)} `)))
  })

  it.effect("is in plain text only during the read callback, then wiped (Q20)", function* () {
    const cipher = yield* cipherWith(ring)
    const sealed = yield* cipher.seal(key, contextOf(bound))
    for (const _ of ["first", "again"]) {
      assert.strictEqual(yield* cipher.read(sealed, contextOf(bound), String), Redacted.value(key))
    }
    const buffer = yield* cipher.read(sealed, contextOf(bound), (opened) => opened)
    assert.deepStrictEqual(buffer, Buffer.alloc(Redacted.value(key).length))
  })
})

describe("the keyring (docs/keys.md, The keyring)", () => {
  it.effect("seals under its first key and opens under all of them", function* () {
    const [first, second] = [ringOf("kek-1"), ringOf("kek-2")]
    const before = yield* (yield* cipherWith(first)).seal(key, contextOf(bound))
    assert.strictEqual(before.kek_id, "kek-1")
    const pending = yield* cipherWith(`${first}\n${second}`)
    assert.strictEqual((yield* pending.seal(key, contextOf(bound))).kek_id, "kek-1")
    const rotated = yield* cipherWith(`${second}\n${first}`)
    const after = yield* rotated.seal(key, contextOf(bound))
    assert.strictEqual(after.kek_id, "kek-2")
    assert.strictEqual((yield* rotated.reseal(before, contextOf(bound), contextOf(bound))).kek_id, "kek-2")
    for (const cipher of [pending, rotated]) {
      for (const sealed of [before, after])
        assert.strictEqual(yield* opened(cipher, sealed, bound), Redacted.value(key))
    }
    const retired = yield* cipherWith(second)
    assert.strictEqual(yield* outcome(retired, before, bound), "UnknownKeyId")
    assert.strictEqual(yield* outcome(retired, after, bound), "opened")
  })

  it.effect("does not open a seal under the same key with another id (T3)", function* () {
    const cipher = yield* cipherWith(`${ringOf("kek-1")}\n${disguised("kek-1", "kek-9")}`)
    const sealed = yield* cipher.seal(key, contextOf(bound))
    assert.strictEqual(yield* outcome(cipher, sealed, bound), "opened")
    assert.strictEqual(yield* outcome(cipher, { ...sealed, kek_id: "kek-9" }, bound), "AuthenticationFailed")
  })

  it.effect("cannot seal or open anything while it is empty", function* () {
    const sealed = yield* (yield* cipherWith(ring)).seal(key, contextOf(bound))
    const cipher = yield* cipherWith("")
    const refused = yield* Effect.flip(cipher.seal(key, contextOf(bound)))
    assert.deepInclude(refused, { _tag: "KeyStoreUnavailable", reason: "the keyring is empty" })
    const unknown = yield* Effect.flip(cipher.open(sealed, contextOf(bound)))
    assert.deepInclude(unknown, { _tag: "UnknownKeyId", kek_id: "kek-1" })
  })

  it.effect("fails with KeyStoreUnavailable if its key disappears during a seal", function* () {
    const keys = Layer.succeed(KeyEncryption, {
      primary: () => "kek-1",
      keks: () => [],
      wrap: (kek_id) => Effect.fail(new UnknownKeyId({ kek_id })),
      unwrap: (kek_id) => Effect.fail(new UnknownKeyId({ kek_id }))
    })
    const cipher = yield* Effect.provide(
      Cipher,
      CipherLive.layer.pipe(Layer.provide([keys, Layer.mock(WrapBudget, { spend: () => Effect.void })]))
    )
    const refused = yield* Effect.flip(cipher.seal(key, contextOf(bound)))
    assert.deepInclude(refused, { _tag: "KeyStoreUnavailable", reason: "key kek-1 is no longer available" })
  })
})

describe("a cipher that waits for its key store (R10)", () => {
  const operations = ["seal", "open", "matches", "read", "verify", "reseal"] as const

  /** Every operation, on a key store that runs `answer` before each answer once it is switched on. */
  const askingAfter = Effect.fnUntraced(function* (answer: Effect.Effect<void>) {
    let waits = false
    const slow = Layer.effect(
      KeyEncryption,
      Effect.map(KeyEncryption, (keys) => {
        const waiting = <A, E>(call: Effect.Effect<A, E>) =>
          Effect.suspend(() => (waits ? Effect.andThen(answer, call) : call))
        return {
          ...keys,
          wrap: (...given) => waiting(keys.wrap(...given)),
          unwrap: (...given) => waiting(keys.unwrap(...given))
        } satisfies KeyEncryption["Service"]
      })
    )
    const cipher = yield* Effect.provide(
      Cipher,
      CipherLive.layer.pipe(
        Layer.provide([
          Layer.provide(slow, keyringEncryption),
          Layer.succeed(WrapBudget, { spend: () => Effect.void })
        ]),
        Layer.provide(fixedKeyring(ring))
      )
    )
    const sealed = yield* cipher.seal(key, contextOf(bound))
    waits = true
    const asking: Record<(typeof operations)[number], Effect.Effect<unknown, unknown>> = {
      seal: cipher.seal(key, contextOf(bound)),
      open: cipher.open(sealed, contextOf(bound)),
      matches: cipher.matches(sealed, contextOf(bound), key),
      read: cipher.read(sealed, contextOf(bound), () => 1),
      verify: cipher.verify(sealed, contextOf(bound)),
      reseal: cipher.reseal(sealed, contextOf(bound), contextOf(bound))
    }
    return asking
  })

  it.effect.each(operations)("fails %s after 3 seconds, or at the request's earlier deadline", function* (operation) {
    const { [operation]: ask } = yield* askingAfter(Effect.never)
    const withinTwoSeconds = Effect.suspend(() =>
      Effect.provideService(ask, CurrentDeadline, { until: performance.now() + 2000 })
    )
    for (const [request, most] of [
      [ask, 3000],
      [withinTwoSeconds, 2000]
    ] as const) {
      const asked = yield* Effect.forkChild(Effect.flip(request))
      yield* TestClock.adjust(most - 900)
      assert.isUndefined(asked.pollUnsafe())
      yield* TestClock.adjust(900)
      assert.deepInclude(yield* Fiber.join(asked), { _tag: "KeyStoreUnavailable", reason: "it does not answer" })
    }
  })

  it.effect.each(operations)(
    "completes the operation %s if the key store answers in time, and sets no timer if it answers at once",
    function* (operation) {
      const { [operation]: late } = yield* askingAfter(Effect.sleep(1400))
      const asked = yield* Effect.forkChild(late)
      yield* TestClock.adjust(2999)
      yield* Fiber.join(asked)
      const { [operation]: atOnce } = yield* askingAfter(Effect.void)
      const clock = yield* Clock.Clock
      const timeless = Object.create(clock, {
        sleep: { value: () => Effect.die(new Error("a timer")) }
      }) as Clock.Clock
      yield* Effect.provideService(atOnce, Clock.Clock, timeless)
      const timed = Effect.provideService(late, Clock.Clock, timeless)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(timed)), "control")
    }
  )
})

describe("a PKCS#11 token", () => {
  it.live("serves accounts in turn, so that one with many calls does not delay others (F9)", function* () {
    const { unwrap, wrap } = yield* Effect.provide(KeyEncryption, Layer.provide(keyringEncryption, fixedKeyring(ring)))
    /** Serves one call at a time in order of arrival, as the token process does. */
    const oneAtATime = yield* Semaphore.make(1)
    const token: Token = {
      keks: [{ kek_id: "kek-1", check_value: Buffer.alloc(16) }],
      ask: ({ aad, input, kek_id, nonce, operation }) => {
        const call =
          operation === "wrap"
            ? Effect.map(wrap(kek_id, input, aad), (made) => (nonce.set(made.subarray(0, 12)), made.subarray(12)))
            : unwrap(kek_id, Buffer.concat([nonce, input]), aad)
        const answer = Effect.map(Effect.catchTag(call, "UnknownKeyId", Effect.die), (bytes) => Buffer.from(bytes))
        return oneAtATime.withPermits(1)(Effect.andThen(Effect.sleep("5 millis"), answer))
      }
    }
    const cipher = yield* Effect.provide(
      Cipher,
      CipherLive.layer.pipe(
        Layer.provide([
          Layer.succeed(KeyEncryption, makeTokenEncryption(token)),
          Layer.succeed(WrapBudget, { spend: () => Effect.void })
        ])
      )
    )
    const quiet = { ...bound, account_id: AccountId.make("01935f6a-0000-7000-8000-00000000000b") }
    const [noisy, own] = [yield* cipher.seal(key, contextOf(bound)), yield* cipher.seal(key, contextOf(quiet))]
    let verified = 0
    const one = Effect.tap(cipher.verify(noisy, contextOf(bound)), () => Effect.sync(() => (verified += 1)))
    const flood = yield* Effect.forkChild(Effect.replicateEffect(one, 200, { concurrency: "unbounded", discard: true }))
    yield* Effect.sleep("20 millis")
    const before = verified
    yield* cipher.verify(own, contextOf(quiet))
    yield* cipher.seal(key, contextOf(quiet))
    assert.isBelow(verified - before, 20)
    yield* Fiber.interrupt(flood)
  })
})

describe("the nonce limit (SECURITY.md, Sealing format 1)", () => {
  it.effect("counts one wrap of the key for each seal and reseal, and none for opening", function* () {
    const spent: Array<string> = []
    const cipher = yield* cipherWith(ring, (kek_id) => Effect.sync(() => void spent.push(kek_id)))
    const sealed = yield* cipher.seal(key, contextOf(bound))
    yield* cipher.reseal(sealed, contextOf(bound), contextOf(bound))
    yield* cipher.open(sealed, contextOf(bound))
    assert.deepStrictEqual(spent, ["kek-1", "kek-1"])
  })

  it.effect("stops sealing when it is reached, while sealed keys still open", function* () {
    const sealed = yield* (yield* cipherWith(ring)).seal(key, contextOf(bound))
    const reached = new KeyStoreUnavailable({ reason: "reached" })
    const cipher = yield* cipherWith(ring, () => Effect.fail(reached))
    assert.strictEqual(yield* Effect.flip(cipher.seal(key, contextOf(bound))), reached)
    assert.strictEqual(yield* opened(cipher, sealed, bound), Redacted.value(key))
  })
})

describe("errors of the cipher (T4)", () => {
  /** The byte arrays of which a text has nine consecutive bytes, in any form or as numbers. */
  const quoted = (text: string, ...given: ReadonlyArray<Uint8Array>) => {
    const forms = given.flatMap((bytes, index) => [
      [`bytes ${index}`, Buffer.from(bytes)],
      [`numbers ${index}`, Array.from(bytes).join(", ")]
    ])
    return Object.keys(leakSearch(Object.fromEntries(forms) as Record<string, string | Buffer>)(text))
  }
  const written = (error: Error) =>
    [String(error), inspect(error, { depth: 9 }), JSON.stringify(error), error.message, error.stack ?? ""].join("\n")

  it.effect.prop(
    "contain no provider key, no sealed bytes and no key-encryption key",
    [canary, bytes(32, 32), sealingContext],
    function* ([secret, kek, bound]) {
      const keyring = `kek-1:${kek.toString("base64")}\n${generateKeyring(new Date(0))}`
      const cipher = yield* cipherWith(keyring)
      const sealed = yield* cipher.seal(Redacted.make(secret), contextOf(bound))
      const wrong = { ...bound, disabled: !bound.disabled }
      const spent = yield* cipherWith(keyring, () => Effect.fail(new KeyStoreUnavailable({ reason: "spent" })))
      const errors = [
        yield* Effect.flip(cipher.open(sealed, contextOf(wrong))),
        yield* Effect.flip(cipher.open({ ...sealed, kek_id: "kek-2" }, contextOf(bound))),
        yield* Effect.flip(cipher.open({ ...sealed, sealed: sealed.sealed.subarray(1) }, contextOf(bound))),
        yield* Effect.flip((yield* cipherWith("")).seal(Redacted.make(secret), contextOf(bound))),
        yield* Effect.flip(spent.seal(Redacted.make(secret), contextOf(bound)))
      ]
      const said = errors.map(written).join("\n")
      assert.deepStrictEqual(quoted(said, Buffer.from(secret), kek, sealed.sealed, sealed.wrapped_dek), [])
    },
    { arbitrary: { runs: 10 } }
  )

  it("fail this check if they contain a provider key (control)", () => {
    const secret = Buffer.from("fake-key-0123456789")
    const planted = (reason: string) => quoted(written(new KeyStoreUnavailable({ reason })), secret)
    assert.deepStrictEqual(planted(`cannot seal ${secret.toString("utf8", 2, 14)}`), ["bytes 0"])
    assert.deepStrictEqual(planted(`cannot seal ${Array.from(secret).join(", ")}`), ["numbers 0"])
  })
})
