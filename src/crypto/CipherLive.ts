import { hash, timingSafeEqual } from "node:crypto"
import { Cause, Effect, Layer, Option, Redacted, Result } from "effect"
import type { SealingContext } from "../domain/SealedKey.ts"
import { Cipher, KeyStoreUnavailable, type OpenFailure, type RewrapFailure } from "../port/Cipher.ts"
import { inTurn, KeyEncryption, withKeyStoreTimeout } from "./KeyEncryption.ts"
import { open, reseal, rewrap, seal, verify, wiping } from "./SealingFormat1.ts"
import { WrapBudget } from "./WrapBudget.ts"
import { makeMeter, memoize, timed } from "../runtime/Meter.ts"
import { Rewrapper } from "../port/KekRegistry.ts"

const errorTagOf = (cause: Cause.Cause<{ readonly _tag: string }>) =>
  Option.match(Cause.findErrorOption(cause), { onNone: () => "defect", onSome: ({ _tag }) => _tag })

/** Failures whose series exist from the start, so that dashboards show the first failure as an increase. */
const failures: ReadonlyArray<OpenFailure["_tag"] | "defect"> = [
  "AuthenticationFailed",
  "KeyStoreUnavailable",
  "UnknownKeyId",
  "UnsupportedFormat",
  "defect"
]

/** Makes timers of operations. A timer records durations by the tag of the error, if any; none if interrupted. */
export const makeCryptoTimer = Effect.map(makeMeter, ({ histogram }) => (operation: "seal" | "unwrap" | "rewrap") => {
  const seriesOf = memoize((error: string | undefined) =>
    histogram("byok.crypto.operation.duration", {
      operation,
      ...(error === undefined ? {} : { "error.type": error })
    })
  )
  for (const error of [undefined, ...failures]) seriesOf(error)
  return <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
    timed(effect, (seconds, exit) => {
      if (exit._tag === "Failure" && Cause.hasInterruptsOnly(exit.cause)) return
      seriesOf(exit._tag === "Success" ? undefined : errorTagOf(exit.cause))(seconds)
    })
})

const encode = (context: SealingContext) => Buffer.from(context.text)

const digestOf = (bytes: Uint8Array) => hash("sha256", bytes, "buffer")

/** Seals with sealing format 1 under the primary key of the key store, and opens with the key that a row names. */
export const layer = Layer.effect(
  Cipher,
  Effect.gen(function* () {
    const keys = yield* KeyEncryption
    const budget = yield* WrapBudget
    const timer = yield* makeCryptoTimer
    /** Makes a wrapper of key store calls that measures and limits their time. */
    const timedCall = (operation: "seal" | "unwrap") => {
      const time = timer(operation)
      return <A, E extends { readonly _tag: string }>(call: () => Effect.Effect<A, E>) =>
        time(Effect.suspend(() => withKeyStoreTimeout(call())))
    }
    const [sealing, unwrapping] = [timedCall("seal"), timedCall("unwrap")]

    /** Spends one wrap of the primary key's budget and returns the key's id. */
    const spendWrap = Effect.suspend(() => {
      const primary = keys.primary()
      return primary === undefined
        ? Effect.fail(new KeyStoreUnavailable({ reason: "the keyring is empty" }))
        : Effect.as(budget.spend(primary, keys.keks), primary)
    })

    const read: Cipher["Service"]["read"] = (sealed, context, use) =>
      unwrapping(() =>
        Effect.mapEager(open(inTurn(keys, context.account_id), sealed, encode(context)), (opened) => {
          try {
            return use(opened)
          } finally {
            opened.fill(0)
          }
        })
      )

    return {
      seal: (key, context) =>
        sealing(() =>
          Effect.flatMap(spendWrap, (primary) => {
            const plaintext = Buffer.from(Redacted.value(key))
            const sealed = wiping(plaintext, () =>
              seal(inTurn(keys, context.account_id), primary, plaintext, encode(context))
            )
            return Effect.mapError(sealed, (error) =>
              error._tag === "UnknownKeyId"
                ? new KeyStoreUnavailable({ reason: `key ${error.kek_id} is no longer available` })
                : error
            )
          })
        ),
      open: (sealed, context) => read(sealed, context, (opened) => Redacted.make(opened.toString("utf8"))),
      matches: (sealed, context, key) =>
        read(sealed, context, (opened) => {
          const candidate = Buffer.from(Redacted.value(key))
          const isSame = timingSafeEqual(digestOf(opened), digestOf(candidate))
          candidate.fill(0)
          return isSame
        }),
      read,
      verify: (sealed, context) => unwrapping(() => verify(inTurn(keys, context.account_id), sealed, encode(context))),
      reseal: (sealed, from, to) =>
        sealing(() =>
          Effect.flatMap(spendWrap, (primary) =>
            reseal(inTurn(keys, to.account_id), primary, sealed, encode(from), encode(to))
          )
        )
    }
  })
)

const asResult = (failure: RewrapFailure) => Effect.succeed(Result.fail(failure))

/** Rewraps with sealing format 1 under the primary key of the key store. */
export const rewrapper = Layer.effect(
  Rewrapper,
  Effect.gen(function* () {
    const keys = yield* KeyEncryption
    const budget = yield* WrapBudget
    const rewrapping = (yield* makeCryptoTimer)("rewrap")
    const primary = keys.primary()
    if (primary === undefined) return yield* new KeyStoreUnavailable({ reason: "the keyring is empty" })
    return {
      primary,
      kek_ids: keys.keks().map(({ kek_id }) => kek_id),
      spend: (wraps) =>
        Effect.forEach(Array.from({ length: wraps }), () => budget.spend(primary, keys.keks), { discard: true }).pipe(
          Effect.catchTag("ServiceUnavailable", Effect.die)
        ),
      rewrap: (sealed, context) =>
        rewrapping(
          Effect.suspend(() => rewrap(inTurn(keys, context.account_id), primary, sealed, encode(context)))
        ).pipe(
          Effect.map(Result.succeed),
          Effect.catchTags({ AuthenticationFailed: asResult, UnknownKeyId: asResult, UnsupportedFormat: asResult })
        )
    }
  })
)
