import { Cause, Effect, Option } from "effect"
import type { OpenFailure } from "../port/Cipher.ts"
import { makeMeter, memoize, timed } from "../port/Meter.ts"

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

/** Times operations by the tag of their error, except those that were interrupted. */
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
      seriesOf(exit._tag === "Success" ? undefined : errorOf(exit.cause))(seconds)
    })
})
