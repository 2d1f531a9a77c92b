import { Effect, type Exit, Metric } from "effect"
import { families, type Family, type FamilyName } from "./families.ts"
import { onEnd } from "./onEnd.ts"

/** Creates metrics. Create each series once and keep it: finding it again takes ten times as long as an update. */
export const makeMeter = Effect.gen(function* () {
  const context = yield* Effect.context()
  const registrations: Array<Metric.Registration> = []
  // The registry outlives the objects that series read.
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
  /** Exports the series from now on, at zero, and returns a function that updates it. */
  const startSeries = <Input, State>(metric: Metric.Metric<Input, State>) => {
    metric.valueUnsafe(context)
    return (value: Input) => metric.updateUnsafe(value, context)
  }
  return {
    /** Returns a function that adds one. */
    counter: (family: FamilyName, attributes: Attributes = {}) => {
      const add = startSeries(Metric.counter(family, { ...optionsOf(family, attributes), incremental: true }))
      return () => add(1)
    },
    /** Returns a function that records a value. */
    histogram: (family: FamilyName, attributes: Attributes = {}) => {
      const { bounds = [] }: Family = families[family]
      return startSeries(Metric.histogram(family, { ...optionsOf(family, attributes), boundaries: bounds }))
    },
    /** A counter that is read on export. Returns a function that removes it. */
    observedCounter: (family: FamilyName, attributes: Attributes, read: () => number) =>
      register(Metric.counter(family, { ...optionsOf(family, attributes), incremental: true }), () => ({
        count: read(),
        incremental: true
      })),
    /** A gauge that is read on export. Returns a function that removes it. */
    gauge: (family: FamilyName, attributes: Attributes, read: () => number) =>
      register(Metric.gauge(family, optionsOf(family, attributes)), () => ({ value: read() }))
  }
})

/** The attributes of one series of a family. Each has few values, which never come from clients. */
type Attributes = Readonly<Record<string, string>>

/** Makes a function that calls `make` once for each name and keeps every value. */
export const memoize = <Name, Value>(make: (name: Name) => Value) => {
  const values = new Map<Name, Value>()
  return (name: Name): Value => {
    const cached = values.get(name)
    if (cached !== undefined) return cached
    const value = make(name)
    values.set(name, value)
    return value
  }
}

/** Passes the duration and the exit of an effect to `record`. */
export const timed = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  record: (seconds: number, exit: Exit.Exit<A, E>) => void
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const began = performance.now()
    return onEnd(effect, (exit) => record((performance.now() - began) / 1000, exit))
  })
