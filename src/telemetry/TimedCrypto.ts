import { Cause, Effect, Layer, Option, Result } from "effect"
import { Cipher, type OpenFailure } from "../port/Cipher.ts"
import { makeMeter, memoize, timed } from "../port/Meter.ts"
import { Rewrapper } from "../port/Rewrapper.ts"

const errorOf = (cause: Cause.Cause<{ readonly _tag: string }>) =>
  Option.match(Cause.findErrorOption(cause), { onNone: () => "defect", onSome: ({ _tag }) => _tag })

/** Failures that have series from the start: only so does the first of them show as an increase. */
const failures: ReadonlyArray<OpenFailure["_tag"] | "defect"> = [
  "AuthenticationFailed",
  "KeyStoreUnavailable",
  "UnknownKeyId",
  "UnsupportedFormat",
  "defect"
]

/** Times operations by the tag of their error, except those that were interrupted; `errorIn` finds one in a result. */
const makeTimer = Effect.map(makeMeter, ({ histogram }) => (operation: string) => {
  const seriesOf = memoize((error: string | undefined) =>
    histogram("byok.crypto.operation.duration", {
      operation,
      ...(error === undefined ? {} : { "error.type": error })
    })
  )
  for (const error of [undefined, ...failures]) seriesOf(error)
  return <A, E extends { readonly _tag: string }, R>(
    effect: Effect.Effect<A, E, R>,
    errorIn: (result: A) => string | undefined = () => undefined
  ) =>
    timed(effect, (seconds, exit) => {
      if (exit._tag === "Failure" && Cause.hasInterruptsOnly(exit.cause)) return
      seriesOf(exit._tag === "Success" ? errorIn(exit.value) : errorOf(exit.cause))(seconds)
    })
})

/** Times the cipher below it. To open a key, verify it or seal it to another context, its data key is unwrapped. */
export const cipher = Layer.effect(
  Cipher,
  Effect.gen(function* () {
    const cipher = yield* Cipher
    const timer = yield* makeTimer
    const [sealing, unwrapping] = [timer("seal"), timer("unwrap")]
    return {
      seal: (key, context) => sealing(cipher.seal(key, context)),
      reseal: (sealed, from, to) => sealing(cipher.reseal(sealed, from, to)),
      open: (sealed, context) => unwrapping(cipher.open(sealed, context)),
      holds: (sealed, context, key) => unwrapping(cipher.holds(sealed, context, key)),
      read: (sealed, context, use) => unwrapping(cipher.read(sealed, context, use)),
      prepare: (sealed, context) =>
        Effect.map(unwrapping(cipher.prepare(sealed, context)), ({ read }) => ({
          read: (use) => unwrapping(read(use))
        }))
    }
  })
)

/** Times the rewrapper below it. */
export const rewrapper = Layer.effect(
  Rewrapper,
  Effect.gen(function* () {
    const rewrapper = yield* Rewrapper
    const rewrapping = (yield* makeTimer)("rewrap")
    return {
      ...rewrapper,
      rewrap: (sealed, context) =>
        rewrapping(rewrapper.rewrap(sealed, context), (done) =>
          Result.isFailure(done) ? done.failure._tag : undefined
        )
    }
  })
)
