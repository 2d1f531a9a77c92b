import { randomUUID } from "node:crypto"
import { Arbitrary, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { inTurn, KeyEncryption, makeUnion } from "../../src/crypto/KeyEncryption.ts"
import { makeKeyringEncryption, parseKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { makeTokenEncryption, openToken } from "../../src/crypto/pkcs11/Token.ts"
import { bytes, integer } from "../support/memory/arbitraries.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { flipped } from "../support/keys/sealing.ts"
import { addToken, softHsm, tokenSettings, withoutSoftHsm } from "../support/keys/SoftHsm.ts"
import { assert, describe, it } from "../support/it.ts"

const onRing = (keyring: string) => {
  const ring = parseKeyring(keyring)
  return makeKeyringEncryption({ current: () => ring })
}
const onKeyring = Layer.sync(KeyEncryption, () => onRing(ringOf("kek-1", "kek-2")))
const onTwoKeyrings = Layer.sync(KeyEncryption, () => makeUnion(onRing(ringOf("kek-1")), onRing(ringOf("kek-2"))))
const tokenKeys = (...ids: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const hsm = yield* softHsm
    yield* addToken(hsm, "byok", ...ids.map((id) => ({ id })))
    return makeTokenEncryption(yield* openToken(tokenSettings(hsm, "byok", ...ids)))
  })
const onToken = Layer.effect(KeyEncryption, Effect.orDie(tokenKeys("kek-1", "kek-2")))
const onBoth = Layer.effect(
  KeyEncryption,
  Effect.map(Effect.orDie(tokenKeys("kek-1")), (keys) => makeUnion(keys, onRing(ringOf("kek-2"))))
)

const stores: ReadonlyArray<readonly [name: string, store: Layer.Layer<KeyEncryption>, skipped: string | undefined]> = [
  ["in a keyring", onKeyring, undefined],
  ["in two keyrings", onTwoKeyrings, undefined],
  ["on a PKCS#11 token", onToken, withoutSoftHsm],
  ["on a token and in a keyring", onBoth, withoutSoftHsm]
]

it.effect("an unwrap call that a full queue refuses unwraps nothing", function* () {
  const keyring = onRing(ringOf("kek-1"))
  const [dek, aad] = [Buffer.alloc(32, 1), Buffer.from("aad")]
  const wrapped_dek = yield* keyring.wrap("kek-1", dek, aad)
  let unwrapped = 0
  const keys = {
    ...keyring,
    unwrap: (...args: Parameters<typeof keyring.unwrap>) => {
      unwrapped += 1
      return keyring.unwrap(...args)
    }
  }
  const full = inTurn({ ...keys, queue: () => Effect.fail(new ServiceUnavailable()) }, "account")
  assert.strictEqual((yield* Effect.flip(full.unwrap("kek-1", wrapped_dek, aad)))._tag, "KeyStoreUnavailable")
  assert.strictEqual(unwrapped, 0)
  const free = inTurn({ ...keys, queue: (_, call) => call }, "account")
  assert.isTrue(dek.equals(yield* free.unwrap("kek-1", wrapped_dek, aad)), "control")
  assert.strictEqual(unwrapped, 1)
})

const wrapping = Arbitrary.all({
  dek: bytes(32, 32),
  aad: bytes(0, 300),
  other: bytes(0, 300),
  bit: integer(0, 60 * 8 - 1)
})

for (const [name, store, skipped] of stores) {
  const title = `key-encryption keys ${name} keep their contract`
  describe.skipIf(skipped !== undefined)(skipped === undefined ? title : `${title} (skipped: ${skipped})`, () => {
    it.layer(skipped === undefined ? store : onKeyring, { excludeTestServices: true })((it) => {
      const outcome = (kek_id: string, wrapped_dek: Uint8Array, aad: Uint8Array) =>
        Effect.gen(function* () {
          const { unwrap } = yield* KeyEncryption
          return yield* Effect.match(unwrap(kek_id, wrapped_dek, aad), {
            onFailure: ({ _tag }) => _tag,
            onSuccess: (dek) => dek.toString("hex")
          })
        })

      it.effect.prop(
        "a wrapped key unwraps only with the same key id and additional data (T2, T3)",
        [wrapping],
        function* ([{ aad, bit, dek, other }]) {
          const { wrap } = yield* KeyEncryption
          const expected = dek.toString("hex")
          for (const [kek_id, another] of [
            ["kek-1", "kek-2"],
            ["kek-2", "kek-1"]
          ] as const) {
            const wrapped = yield* wrap(kek_id, dek, aad)
            assert.strictEqual(wrapped.length, 60)
            assert.isFalse(Buffer.from(wrapped).includes(dek.subarray(0, 8)))
            assert.strictEqual(yield* outcome(kek_id, wrapped, aad), expected)
            assert.strictEqual(yield* outcome(another, wrapped, aad), "AuthenticationFailed")
            assert.strictEqual(yield* outcome(kek_id, flipped(wrapped, bit), aad), "AuthenticationFailed")
            const same = Buffer.compare(aad, other) === 0
            assert.strictEqual(yield* outcome(kek_id, wrapped, other), same ? expected : "AuthenticationFailed")
            const again = yield* wrap(kek_id, dek, aad)
            assert.notDeepEqual(again.subarray(0, 12), wrapped.subarray(0, 12), "no nonce is used twice")
          }
        },
        { arbitrary: { runs: 20 } }
      )

      it.effect("a wrapped key with any bit flipped or of another length is refused (T3)", function* () {
        const { wrap } = yield* KeyEncryption
        const aad = Buffer.from("the AAD")
        const wrapped = yield* wrap("kek-1", Buffer.alloc(32, "D"), aad)
        const changed = [
          ...Array.from({ length: 480 }, (_, bit) => flipped(wrapped, bit)),
          ...Array.from({ length: 60 }, (_, length) => wrapped.subarray(0, length)),
          Buffer.concat([wrapped, Buffer.alloc(1)])
        ]
        const together = { concurrency: "unbounded" } as const
        const outcomes = yield* Effect.forEach(changed, (one) => outcome("kek-1", one, aad), together)
        assert.deepStrictEqual(outcomes, Array(541).fill("AuthenticationFailed"))
        assert.strictEqual(yield* outcome("kek-1", wrapped, aad), Buffer.alloc(32, "D").toString("hex"))
      })

      it.effect("wrap and unwrap under an unknown key id fail with UnknownKeyId", function* () {
        const { wrap } = yield* KeyEncryption
        for (const kek_id of ["", "kek-3", "KEK-1", randomUUID()]) {
          assert.deepInclude(yield* Effect.flip(wrap(kek_id, Buffer.alloc(32), Buffer.alloc(0))), {
            _tag: "UnknownKeyId",
            kek_id
          })
          assert.strictEqual(yield* outcome(kek_id, Buffer.alloc(60), Buffer.alloc(0)), "UnknownKeyId")
        }
      })

      it.effect("the first key is primary, and each key has a different check value (T12)", function* () {
        const { keks, primary } = yield* KeyEncryption
        assert.strictEqual(primary(), "kek-1")
        assert.deepStrictEqual(
          keks().map(({ kek_id }) => kek_id),
          ["kek-1", "kek-2"]
        )
        const values = keks().map(({ check_value }) => Buffer.from(check_value).toString("hex"))
        assert.deepStrictEqual(
          values.map(({ length }) => length),
          [32, 32]
        )
        assert.strictEqual(new Set(values).size, 2)
      })

      it.effect("100 concurrent callers each get back their own data key", function* () {
        const { unwrap, wrap } = yield* KeyEncryption
        const aad = Buffer.from("the AAD")
        const deks = Array.from({ length: 100 }, (_, index) => Buffer.alloc(32, index + 1))
        const opened = yield* Effect.forEach(
          deks,
          (dek) => Effect.flatMap(wrap("kek-1", dek, aad), (wrapped) => unwrap("kek-1", wrapped, aad)),
          { concurrency: "unbounded" }
        )
        assert.deepEqual(opened, deks)
      })
    })
  })
}
