import { createCipheriv, createHash } from "node:crypto"
import { setImmediate } from "node:timers/promises"
import { inspect } from "node:util"
import { Duration, Effect, Fiber, Redacted } from "effect"
import { makeTokenEncryption, openToken, type Token, type TokenSettings } from "../../../src/crypto/pkcs11/Token.ts"
import { open } from "../../../src/crypto/SealingFormat1.ts"
import { vi } from "vitest"
import { childProcesses } from "../../support/process/ServiceProcess.ts"
import { eventually } from "../../support/process/eventually.ts"
import {
  addKeys,
  addToken,
  attempts,
  noticingNewPin,
  pin,
  type SoftHsm,
  softHsm,
  tokenSettings,
  withoutSoftHsm,
  withoutTokens
} from "../../support/keys/SoftHsm.ts"
import vectors from "../../vectors/sealing-format-1.json" with { type: "json" }
import { assert, describe, it } from "../../support/it.ts"

const skipped = withoutSoftHsm === undefined ? "" : ` (skipped: ${withoutSoftHsm})`
const bytes = Buffer.alloc(32, "0123456789abcdef0123456789ABCDEF").toString("hex")
const aad = Buffer.from("the AAD")
const dek = Buffer.alloc(32, "D")

const unwrapped = (token: Token, wrapped: Uint8Array) =>
  Effect.match(makeTokenEncryption(token).unwrap("kek-1", wrapped, aad), {
    onFailure: ({ _tag }) => _tag,
    onSuccess: (found) => found.toString()
  })

const outcome = (token: Token) =>
  Effect.match(makeTokenEncryption(token).wrap("kek-1", dek, aad), {
    onFailure: (failure) => failure._tag,
    onSuccess: () => "wrapped" as const
  })

const begin = Effect.gen(function* () {
  const hsm = yield* softHsm
  yield* addToken(hsm, "byok", { id: "kek-1", bytes })
  return hsm
})

/** The process that speaks to the token that `opened` opens. */
const withProcess = Effect.fnUntraced(function* (settings: TokenSettings) {
  const before = childProcesses()
  const token = yield* openToken(settings)
  const [pid, ...others] = childProcesses().filter((one) => !before.includes(one))
  if (pid === undefined || others.length > 0) return yield* Effect.die(new Error("not one process"))
  return { token, pid }
})

const wrapsAgain = (token: Token) =>
  eventually(
    "it wraps again",
    Effect.map(outcome(token), (how) => how === "wrapped")
  )

describe.skipIf(skipped !== "")(`keys on a PKCS#11 token (SECURITY.md, Keys on a PKCS#11 token)${skipped}`, () => {
  it.live("open the golden ciphertexts of sealing format 1", function* () {
    const hsm = yield* softHsm
    const keys = new Map(vectors.map(({ kek, kek_id }) => [kek_id, kek]))
    yield* addToken(hsm, "golden", ...Array.from(keys, ([id, bytes]) => ({ id, bytes })))
    const token = makeTokenEncryption(yield* openToken(tokenSettings(hsm, "golden", ...keys.keys())))
    for (const { context, kek, kek_id, key, sealed, wrapped_dek } of vectors) {
      assert.strictEqual(keys.get(kek_id), kek, "one key of each id")
      const row = { kek_id, wrapped_dek: Buffer.from(wrapped_dek, "hex"), sealed: Buffer.from(sealed, "hex") }
      assert.strictEqual((yield* open(token, row, Buffer.from(context))).toString(), key)
    }
  })

  it.live("have a check value made with AES-ECB from a block that GCM never encrypts (T12)", function* () {
    const { keks } = yield* openToken(tokenSettings(yield* begin, "byok", "kek-1"))
    const block = Buffer.concat([
      createHash("sha256").update("byok/kcv/kek-1").digest().subarray(0, 12),
      Buffer.from("byok")
    ])
    const ecb = createCipheriv("aes-256-ecb", Buffer.from(bytes, "hex"), null).setAutoPadding(false)
    assert.deepEqual(
      keks.map(({ check_value, kek_id }) => [kek_id, Buffer.from(check_value)]),
      [["kek-1", ecb.update(block)]]
    )
    assert.isAbove(block.readUInt32BE(12), 3, "the counters of 32 bytes are 1, 2 and 3")
  })

  const wrong: ReadonlyArray<
    readonly [string, (settings: TokenSettings) => TokenSettings, part: string, found: RegExp]
  > = [
    ["module", (given) => ({ ...given, module: "/dev/null" }), "module", /can be loaded$/],
    ["label", (given) => ({ ...given, token: "other" }), "token", /found 0 with this label$/],
    ["PIN", (given) => ({ ...given, pin: Redacted.make("canary-wrong") }), "pin", /found CKR_PIN_INCORRECT$/],
    ["missing key", (given) => ({ ...given, kek_ids: ["none"] }), "kek_ids", /^key 1: .* found none$/],
    ["key that is there twice", (given) => ({ ...given, kek_ids: ["twice"] }), "kek_ids", /found several$/],
    ["key of 16 bytes", (given) => ({ ...given, kek_ids: ["kek-1", "short"] }), "kek_ids", /^key 2: .* another kind$/],
    ["key that is not marked sensitive", (given) => ({ ...given, kek_ids: ["shown"] }), "kek_ids", /can be extracted$/],
    ["key that is extractable", (given) => ({ ...given, kek_ids: ["lent"] }), "kek_ids", /can be extracted$/]
  ]

  it.live("are refused if module, label, PIN or key is wrong; the error names which, not its value", function* () {
    const hsm = yield* begin
    yield* addKeys(
      hsm,
      "byok",
      { id: "twice" },
      { id: "twice" },
      { id: "short", length: 16 },
      { id: "shown", sensitive: false },
      { id: "lent", extractable: true }
    )
    for (const [name, change, part, found] of wrong) {
      const refused = yield* Effect.flip(Effect.scoped(openToken(change(tokenSettings(hsm, "byok", "kek-1")))))
      assert(refused._tag === "TokenRefused", name)
      assert.strictEqual(refused.part, part)
      assert.match(refused.message, found)
      assert.notInclude(inspect(refused, { depth: null }), "canary")
    }
    assert.strictEqual(yield* outcome(yield* openToken(tokenSettings(hsm, "byok", "kek-1"))), "wrapped")
  })

  it.live("end the token's process when the scope closes", function* () {
    const settings = tokenSettings(yield* begin, "byok", "kek-1")
    const { pid } = yield* Effect.scoped(withProcess(settings))
    assert.notInclude(childProcesses(), pid)
  })

  it.live("unwrap again after the token's process was killed or the token was away (R10)", function* () {
    const hsm = yield* begin
    const { pid, token } = yield* withProcess(tokenSettings(hsm, "byok", "kek-1"))
    const wrapped = yield* makeTokenEncryption(token).wrap("kek-1", dek, aad)
    process.kill(pid, "SIGKILL")
    yield* eventually(
      "it has gone",
      Effect.sync(() => !childProcesses().includes(pid))
    )
    yield* wrapsAgain(token)
    assert.strictEqual(yield* unwrapped(token, wrapped), dek.toString())

    yield* withoutTokens(
      hsm,
      Effect.gen(function* () {
        assert.strictEqual(yield* outcome(token), "KeyStoreUnavailable")
        assert.strictEqual(
          yield* unwrapped(token, wrapped),
          "KeyStoreUnavailable",
          "which must not be taken for tampering"
        )
      })
    )
    yield* wrapsAgain(token)
    assert.strictEqual(yield* unwrapped(token, wrapped), dek.toString())
  })

  it.live("fail at the deadline if the token does not answer, then work in a new process (R10)", function* () {
    const settings = { ...tokenSettings(yield* begin, "byok", "kek-1"), deadline: Duration.seconds(1) }
    const { pid, token } = yield* withProcess(settings)
    yield* wrapsAgain(token)
    process.kill(pid, "SIGSTOP")
    const many = yield* Effect.all([outcome(token), outcome(token), outcome(token)], { concurrency: "unbounded" })
    assert.deepStrictEqual(many, ["KeyStoreUnavailable", "KeyStoreUnavailable", "KeyStoreUnavailable"])
    yield* wrapsAgain(token)
    assert.notInclude(childProcesses(), pid)
  })

  it.live("wipe an answer that arrives after its caller has left (SECURITY.md, Out of scope)", function* () {
    const { pid, token } = yield* withProcess(tokenSettings(yield* begin, "byok", "kek-1"))
    const wrapped = yield* makeTokenEncryption(token).wrap("kek-1", dek, aad)
    const wiped: Array<string> = []
    const prototype = Object.getPrototypeOf(Buffer.alloc(0)) as Uint8Array
    const fill = Reflect.get(prototype, "fill")
    const watched = function (this: Uint8Array, value: number) {
      if (value === 0) wiped.push(Buffer.from(this).toString())
      return fill.call(this, value)
    }
    const spy = vi.spyOn(prototype, "fill").mockImplementation(watched)
    yield* Effect.addFinalizer(() => Effect.sync(() => spy.mockRestore()))
    assert.strictEqual(yield* unwrapped(token, wrapped), dek.toString())
    assert.isEmpty(wiped, "control: a caller that is there wipes it itself")
    process.kill(pid, "SIGSTOP")
    yield* Effect.exit(Effect.timeout(unwrapped(token, wrapped), "50 millis"))
    process.kill(pid, "SIGCONT")
    yield* eventually(
      "it is wiped",
      Effect.sync(() => wiped.includes(dek.toString()))
    )
  })

  it.live(
    "get a new process if the token does not answer, even if all callers leave before the deadline (R10)",
    function* () {
      const settings = { ...tokenSettings(yield* begin, "byok", "kek-1"), deadline: Duration.seconds(1) }
      const { pid, token } = yield* withProcess(settings)
      yield* wrapsAgain(token)
      process.kill(pid, "SIGSTOP")
      yield* eventually(
        "its process has gone",
        Effect.map(Effect.exit(Effect.timeout(outcome(token), "50 millis")), () => !childProcesses().includes(pid))
      )
      yield* wrapsAgain(token)
    }
  )

  const replace = (hsm: SoftHsm, other: string) =>
    addKeys(hsm, "byok", { id: "kek-1", remove: true }, { id: "kek-1", bytes: other })

  it.live("work again if the same key is put back under its label, but not another (R10, T12)", function* () {
    const hsm = yield* begin
    const { pid, token } = yield* withProcess(tokenSettings(hsm, "byok", "kek-1"))
    const wrapped = yield* makeTokenEncryption(token).wrap("kek-1", dek, aad)
    yield* replace(hsm, bytes)
    assert.strictEqual(yield* outcome(token), "wrapped")
    assert.strictEqual(yield* unwrapped(token, wrapped), dek.toString())
    assert.include(childProcesses(), pid)

    yield* replace(hsm, Buffer.alloc(32, "another key").toString("hex"))
    assert.strictEqual(yield* unwrapped(token, wrapped), "KeyStoreUnavailable")
    assert.strictEqual(yield* outcome(token), "KeyStoreUnavailable")
    yield* replace(hsm, bytes)
    yield* wrapsAgain(token)
    assert.strictEqual(yield* unwrapped(token, wrapped), dek.toString())
  })

  it.live("try the old PIN once after the token's PIN was changed, so as not to lock the token", function* () {
    const hsm = yield* begin
    const { pid, token } = yield* withProcess(tokenSettings(hsm, "byok", "kek-1"))
    yield* withoutTokens(hsm, Effect.asVoid(outcome(token)))
    yield* eventually(
      "it has gone",
      Effect.sync(() => !childProcesses().includes(pid))
    )
    const other = "another-pin-1234"
    yield* addKeys(hsm, "byok", { id: "kek-1", setPin: other })
    const before = yield* attempts(hsm)
    const reason = yield* eventuallyRefused(token)
    assert.match(reason, /expected the PIN of the token's user; found CKR_PIN_INCORRECT$/)
    assert.strictEqual((yield* attempts(hsm)) - before, 1)
    yield* addKeys({ ...hsm, pin: other }, "byok", { id: "kek-1", setPin: pin })
    assert.strictEqual(yield* outcome(token), "KeyStoreUnavailable", "until the service is started again")
  })

  it.live("wrap again after their process is killed, even if the clock is set back by an hour", function* () {
    const hsm = yield* begin
    const { pid, token } = yield* withProcess(tokenSettings(hsm, "byok", "kek-1"))
    const now = Date.now
    yield* Effect.addFinalizer(() => Effect.sync(() => (Date.now = now)))
    process.kill(pid, "SIGKILL")
    yield* eventually(
      "the token is lost",
      Effect.map(outcome(token), (how) => how === "KeyStoreUnavailable")
    )
    Date.now = () => now() - 3_600_000
    yield* wrapsAgain(token)
  })

  for (const calls of [1, 20])
    it.live(`try a refused PIN once in a new session, with ${calls} waiting calls`, function* () {
      const hsm = yield* begin
      const settings = tokenSettings(hsm, "byok", "kek-1")
      const { changed, opened } = yield* noticingNewPin(hsm, withProcess(settings))
      const { pid, token } = opened
      yield* addKeys(
        hsm,
        "byok",
        { id: "kek-1", setPin: "another-pin-1234" },
        { id: "kek-1", remove: true },
        { id: "kek-1", bytes }
      )
      yield* changed
      const before = yield* attempts(hsm)
      process.kill(pid, "SIGSTOP")
      const asked = yield* Effect.forkChild(Effect.replicateEffect(outcome(token), calls, { concurrency: "unbounded" }))
      yield* Effect.promise(() => setImmediate())
      process.kill(pid, "SIGCONT")
      assert.deepStrictEqual(yield* Fiber.join(asked), Array(calls).fill("KeyStoreUnavailable"))
      yield* eventuallyRefused(token)
      assert.notInclude(childProcesses(), pid)
      assert.strictEqual((yield* attempts(hsm)) - before, 1)
      yield* Effect.flip(Effect.scoped(openToken(settings)))
      assert.strictEqual((yield* attempts(hsm)) - before, 2, "which another service adds")
    })
})

const eventuallyRefused = Effect.fnUntraced(function* (token: Token) {
  let reason = ""
  yield* eventually(
    "it is refused",
    Effect.map(Effect.flip(makeTokenEncryption(token).wrap("kek-1", dek, aad)), (failure) => {
      if (failure._tag === "KeyStoreUnavailable") reason = failure.reason
      return reason.includes("PIN")
    })
  )
  return reason
})
