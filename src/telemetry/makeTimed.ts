import { Cause, Effect, Option } from "effect"
import { eachOnce } from "./eachOnce.ts"

const errorOf = (cause: Cause.Cause<{ readonly _tag: string }>) => {
  if (Cause.hasInterruptsOnly(cause)) return "interrupted"
  return Option.match(Cause.findErrorOption(cause), { onNone: () => "defect", onSome: ({ _tag }) => _tag })
}

/** Makes what records how long an effect takes, by the tag of its error; `errorIn` finds one in a result. */
export const makeTimed = (series: (attributes: { readonly "error.type"?: string }) => (seconds: number) => void) => {
  const succeeded = series({})
  const failed = eachOnce((error: string) => series({ "error.type": error }))
  return <A, E extends { readonly _tag: string }, R>(
    effect: Effect.Effect<A, E, R>,
    errorIn: (result: A) => string | undefined = () => undefined
  ): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      const began = performance.now()
      return Effect.onExit(effect, (exit) =>
        Effect.sync(() => {
          const seconds = (performance.now() - began) / 1000
          const error = exit._tag === "Success" ? errorIn(exit.value) : errorOf(exit.cause)
          if (error === undefined) succeeded(seconds)
          else failed(error)(seconds)
        })
      )
    })
}
