import { Cause, Effect, Layer, Option, Redacted, Result } from "effect"
import { Cipher, type OpenFailure } from "../port/Cipher.ts"
import { Rewrapper } from "../port/KekRegistry.ts"
import { makeMeter, memoize, timed } from "../runtime/Meter.ts"
import { Keyring } from "./keyring/Keyring.ts"
import { open, rewrap, seal, verify, wiping } from "./SealingFormat1.ts"
import { WrapBudget } from "./WrapBudget.ts"

const errorTagOf = (cause: Cause.Cause<{ readonly _tag: string }>) =>
  Option.match(Cause.findErrorOption(cause), { onNone: () => "defect", onSome: ({ _tag }) => _tag })

/** Failures whose series exist from the start, so that dashboards show the first failure as an increase. */
const failures = {
  seal: ["SealingRefused", "ServiceUnavailable", "DatabaseFailure"],
  unwrap: ["AuthenticationFailed", "UnknownKeyId", "UnsupportedFormat"],
  rewrap: ["AuthenticationFailed", "UnknownKeyId", "UnsupportedFormat"]
}

/** Makes the histogram of an operation. Returns a function that records a duration, and the tag of the error, if any. */
const makeCryptoHistogram = Effect.map(makeMeter, ({ histogram }) => (operation: keyof typeof failures) => {
  const seriesOf = memoize((error: string | undefined) =>
    histogram("byok.crypto.operation.duration", {
      operation,
      ...(error === undefined ? {} : { "error.type": error })
    })
  )
  for (const error of [undefined, ...failures[operation]]) seriesOf(error)
  return (seconds: number, error: string | undefined) => seriesOf(error)(seconds)
})

/** Makes a function that measures synchronous calls of an operation. */
export const makeCryptoTimer = Effect.map(makeCryptoHistogram, (histogramOf) => (operation: "unwrap" | "rewrap") => {
  const record = histogramOf(operation)
  return <A>(call: () => Result.Result<A, OpenFailure>) => {
    const began = performance.now()
    const result = call()
    record((performance.now() - began) / 1000, Result.isFailure(result) ? result.failure._tag : undefined)
    return result
  }
})

/** Seals with sealing format 1 under the primary key of the keyring, and opens with the key that a row names. */
export const layer = Layer.effect(
  Cipher,
  Effect.gen(function* () {
    const { current } = yield* Keyring
    const budget = yield* WrapBudget
    const recordSeal = (yield* makeCryptoHistogram)("seal")
    const unwrapping = (yield* makeCryptoTimer)("unwrap")

    return {
      seal: (key, context) =>
        timed(
          Effect.suspend(() => {
            const { byId, primary } = current()
            return Effect.mapEager(budget.spend(primary.kek_id, byId), () =>
              wiping(Buffer.from(Redacted.value(key) as string), (plaintext) =>
                seal(primary, plaintext, Buffer.from(context))
              )
            )
          }),
          (seconds, exit) => {
            if (exit._tag === "Success") recordSeal(seconds, undefined)
            else if (!Cause.hasInterruptsOnly(exit.cause)) recordSeal(seconds, errorTagOf(exit.cause))
          }
        ),
      read: (sealed, context, use) =>
        Result.map(
          unwrapping(() => open(current().byId, sealed, Buffer.from(context))),
          (opened) => wiping(opened, use)
        ),
      verify: (sealed, context) => unwrapping(() => verify(current().byId, sealed, Buffer.from(context)))
    }
  })
)

/** Rewraps with sealing format 1 under the primary key of the keyring. */
export const rewrapper = Layer.effect(
  Rewrapper,
  Effect.gen(function* () {
    const { byId, primary } = (yield* Keyring).current()
    const budget = yield* WrapBudget
    const rewrapping = (yield* makeCryptoTimer)("rewrap")
    return {
      primary: primary.kek_id,
      kek_ids: Array.from(byId.keys()),
      spend: (wraps) =>
        Effect.forEach(Array.from({ length: wraps }), () => budget.spend(primary.kek_id, byId), { discard: true }),
      rewrap: (sealed, context) => rewrapping(() => rewrap(byId, primary, sealed, Buffer.from(context)))
    }
  })
)
