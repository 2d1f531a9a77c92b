import { Effect, type Exit, Metric } from "effect"
import { families, type Family, type FamilyName } from "./families.ts"

/** What tells the series of one family apart. Every value is one of a few that the service itself chooses. */
type Attributes = Readonly<Record<string, string>>

/** Make each series once and keep it: finding it again by its attributes costs ten times as much as an update. */
export const makeMeter = Effect.gen(function* () {
  const context = yield* Effect.context()
  const registrations: Array<Metric.Registration> = []
  // The registry outlives what a series is read from.
  yield* Effect.addFinalizer(() => Effect.sync(() => registrations.forEach((registration) => registration.remove())))
  const optionsOf = (family: FamilyName, attributes: Attributes) => {
    const { description, unit }: Family = families[family]
    return { description, attributes: { ...attributes, unit } }
  }
  const register = <Input, State>(metric: Metric.Metric<Input, State>, get: () => State) => {
    const registration = Metric.registerUnsafe(metric, context, { get, update: () => {}, modify: () => {} })
    registrations.push(registration)
    return () => registration.remove()
  }
  /** A series is exported from its first value on; this one is zero. */
  const begin = <Input, State>(metric: Metric.Metric<Input, State>) => {
    metric.valueUnsafe(context)
    return (value: Input) => metric.updateUnsafe(value, context)
  }
  return {
    counter: (family: FamilyName, attributes: Attributes = {}) => {
      const add = begin(Metric.counter(family, { ...optionsOf(family, attributes), incremental: true }))
      return () => add(1)
    },
    histogram: (family: FamilyName, attributes: Attributes = {}) => {
      const { bounds = [] }: Family = families[family]
      return begin(Metric.histogram(family, { ...optionsOf(family, attributes), boundaries: bounds }))
    },
    /** A counter that is read when it is exported. Returns what removes it. */
    observedCounter: (family: FamilyName, attributes: Attributes, read: () => number) =>
      register(Metric.counter(family, { ...optionsOf(family, attributes), incremental: true }), () => ({
        count: read(),
        incremental: true
      })),
    /** A gauge that is read when it is exported. Returns what removes it. */
    gauge: (family: FamilyName, attributes: Attributes, read: () => number) =>
      register(Metric.gauge(family, optionsOf(family, attributes)), () => ({ value: read() }))
  }
})

/** Remembers what was made for each name. The names must be few. */
export const memoize = <Name, Made>(make: (name: Name) => Made) => {
  const made = new Map<Name, Made>()
  return (name: Name): Made => {
    const found = made.get(name)
    if (found !== undefined) return found
    const fresh = make(name)
    made.set(name, fresh)
    return fresh
  }
}

/** Tells how many seconds an effect took and how it ended. */
export const timed = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  ended: (seconds: number, exit: Exit.Exit<A, E>) => void
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const began = performance.now()
    return Effect.onExit(effect, (exit) => Effect.sync(() => ended((performance.now() - began) / 1000, exit)))
  })
