import { Effect } from "effect"
import { vi } from "vitest"

/** The contents of all arrays and buffers filled with zeros while a program runs. */
export const wipedBy = <A, E, R>(program: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const seen: Array<string> = []
    const spies = [Uint8Array.prototype, Buffer.prototype].map((prototype: Uint8Array) => {
      const fill = Reflect.get(prototype, "fill")
      return vi.spyOn(prototype, "fill").mockImplementation(function (this: Uint8Array, value, from, to) {
        if (value === 0) seen.push(Buffer.from(this).toString())
        return fill.call(this, value, from, to)
      })
    })
    yield* Effect.ensuring(
      program,
      Effect.sync(() => {
        for (const spy of spies) spy.mockRestore()
      })
    )
    return seen
  })
