import { Effect, type Exit } from "effect"

/**
 * Calls a function when an effect ends, even if interrupted. Unlike `Effect.onExit`, runs no effect at the end, which
 * saves requests three steps each time.
 */
export const onEnd = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  end: (exit: Exit.Exit<A, E>) => void
): Effect.Effect<A, E, R> =>
  Effect.onExitPrimitive(effect, (exit) => {
    end(exit)
    return undefined
  })
