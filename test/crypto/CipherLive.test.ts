import { inspect } from "node:util"
import { Arbitrary, DateTime, Effect, Redacted, Result } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { contextOf, type SealedKey, type BoundCredential } from "../../src/domain/SealedKey.ts"
import { Cipher, SealingRefused } from "../../src/port/Cipher.ts"
import { matchesKey, openKey, resealKey } from "../../src/service/credentials/StoredKey.ts"
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
import { disguised, ringOf } from "../support/keys/keyrings.ts"
import { leakSearch } from "../support/keys/leakSearch.ts"
import { flipped } from "../support/keys/sealing.ts"
import { cipherOn } from "../support/memory/inMemory.ts"
import { assert, describe, it } from "../support/it.ts"

const cipherWith = (...given: Parameters<typeof cipherOn>) => Effect.provide(Cipher, cipherOn(...given))
const plainCipher = Effect.provide(Cipher, CipherPlain.layer)
const ring = ringOf("kek-1", "kek-2")
const key = Redacted.make("fake-key-0123456789-AbCd")

const opened = (cipher: Cipher["Service"], sealed: SealedKey, context: BoundCredential) =>
  Redacted.value(Result.getOrThrow(openKey(cipher, sealed, contextOf(context))))

/** The tag of the error that every opening operation fails with, or "opened". */
const outcome = Effect.fnUntraced(function* (cipher: Cipher["Service"], sealed: SealedKey, bound: BoundCredential) {
  const context = contextOf(bound)
  const uses: ReadonlyArray<Effect.Effect<unknown, { readonly _tag: string }>> = [
    Effect.fromResult(openKey(cipher, sealed, context)),
    Effect.fromResult(cipher.verify(sealed, context)),
    Effect.fromResult(matchesKey(cipher, sealed, context, key)),
    resealKey(cipher, sealed, context, context)
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
      assert.strictEqual(opened(cipher, sealed, one), Redacted.value(keys[0]))
      assert.strictEqual(opened(cipher, otherSealed, other), Redacted.value(keys[1]))
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
      assert.strictEqual(opened(cipher, sealed, context), Redacted.value(keys[0]))
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
const isSealedAgain = Effect.fnUntraced(function* (
  cipher: Cipher["Service"],
  { keys: [key], one, other }: Rows,
  reseal: typeof resealKey
) {
  const old = yield* cipher.seal(key, contextOf(one))
  const made = yield* reseal(cipher, old, contextOf(one), contextOf(other))
  const others = [yield* outcome(cipher, made, one), yield* outcome(cipher, { ...made, sealed: old.sealed }, other)]
  const bytes = Buffer.concat([made.sealed, made.wrapped_dek])
  return (
    opened(cipher, made, other) === Redacted.value(key) &&
    others.every((how) => how === "AuthenticationFailed") &&
    !bytes.includes(Buffer.from(old.sealed.subarray(2, 46))) &&
    !bytes.includes(Buffer.from(old.wrapped_dek.subarray(0, 12)))
  )
})

describe("resealing a key whose policy changes (L8)", () => {
  it.effect.prop("seals the key to its new context under a new data key", [twoRows], function* ([rows]) {
    assert.isTrue(yield* isSealedAgain(yield* cipherWith(ring), rows, resealKey))
  })

  it.effect("fails this check if the cipher keeps the old context (control)", function* () {
    const lazy: typeof resealKey = (_cipher, sealed) => Effect.succeed(sealed)
    for (const [cipher, reseal] of [
      [yield* plainCipher, resealKey],
      [yield* cipherWith(ring), lazy]
    ] as const) {
      const checked = isSealedAgain(cipher, rows, reseal)
      assert.isFalse(yield* Effect.catchCause(checked, () => Effect.succeed(false)))
    }
  })
})

describe("a sealed key", () => {
  it.effect.prop("matches only exactly the same key (L6)", [twoRows], function* ([{ keys, one }]) {
    const [key, other] = keys
    const cipher = yield* cipherWith(ring)
    const sealed = yield* cipher.seal(key, contextOf(one))
    assert.isTrue(Result.getOrThrow(matchesKey(cipher, sealed, contextOf(one), key)))
    assert.strictEqual(
      Result.getOrThrow(matchesKey(cipher, sealed, contextOf(one), other)),
      Redacted.value(key) === Redacted.value(other)
    )
    assert.isFalse(
      Result.getOrThrow(matchesKey(cipher, sealed, contextOf(one), Redacted.make(`${Redacted.value(key)} `)))
    )
  })

  it.effect("is in plain text only during the read callback, then wiped (Q20)", function* () {
    const cipher = yield* cipherWith(ring)
    const sealed = yield* cipher.seal(key, contextOf(bound))
    for (const _ of ["first", "again"]) {
      assert.strictEqual(Result.getOrThrow(cipher.read(sealed, contextOf(bound), String)), Redacted.value(key))
    }
    const buffer = Result.getOrThrow(cipher.read(sealed, contextOf(bound), (opened) => opened))
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
    assert.strictEqual((yield* resealKey(rotated, before, contextOf(bound), contextOf(bound))).kek_id, "kek-2")
    for (const cipher of [pending, rotated]) {
      for (const sealed of [before, after]) assert.strictEqual(opened(cipher, sealed, bound), Redacted.value(key))
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
})

describe("the nonce limit (SECURITY.md, Sealing format 1)", () => {
  it.effect("counts one wrap of the key for each seal and reseal, and none for opening", function* () {
    const spent: Array<string> = []
    const cipher = yield* cipherWith(ring, (kek_id) => Effect.sync(() => void spent.push(kek_id)))
    const sealed = yield* cipher.seal(key, contextOf(bound))
    yield* resealKey(cipher, sealed, contextOf(bound), contextOf(bound))
    opened(cipher, sealed, bound)
    assert.deepStrictEqual(spent, ["kek-1", "kek-1"])
  })

  it.effect("stops sealing when it is reached, while sealed keys still open", function* () {
    const sealed = yield* (yield* cipherWith(ring)).seal(key, contextOf(bound))
    const reached = new SealingRefused({ reason: "reached" })
    const cipher = yield* cipherWith(ring, () => Effect.fail(reached))
    assert.strictEqual(yield* Effect.flip(cipher.seal(key, contextOf(bound))), reached)
    assert.strictEqual(opened(cipher, sealed, bound), Redacted.value(key))
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
      const spent = yield* cipherWith(keyring, () => Effect.fail(new SealingRefused({ reason: "spent" })))
      const errors = [
        yield* Effect.flip(Effect.fromResult(openKey(cipher, sealed, contextOf(wrong)))),
        yield* Effect.flip(Effect.fromResult(openKey(cipher, { ...sealed, kek_id: "kek-2" }, contextOf(bound)))),
        yield* Effect.flip(
          Effect.fromResult(openKey(cipher, { ...sealed, sealed: sealed.sealed.subarray(1) }, contextOf(bound)))
        ),
        yield* Effect.flip(spent.seal(Redacted.make(secret), contextOf(bound)))
      ]
      const said = errors.map(written).join("\n")
      assert.deepStrictEqual(quoted(said, Buffer.from(secret), kek, sealed.sealed, sealed.wrapped_dek), [])
    },
    { arbitrary: { runs: 10 } }
  )

  it("fail this check if they contain a provider key (control)", () => {
    const secret = Buffer.from("fake-key-0123456789")
    const planted = (reason: string) => quoted(written(new SealingRefused({ reason })), secret)
    assert.deepStrictEqual(planted(`cannot seal ${secret.toString("utf8", 2, 14)}`), ["bytes 0"])
    assert.deepStrictEqual(planted(`cannot seal ${Array.from(secret).join(", ")}`), ["numbers 0"])
  })
})
