import { Effect } from "effect"
import { setTimeout } from "node:timers/promises"

/** In real time even where a test has stopped the clock: the processes waited for do not know of that. */
export const pause = (milliseconds: number, options: { readonly ref?: boolean } = {}) =>
  Effect.promise((signal) => setTimeout(milliseconds, undefined, { ...options, signal }))
