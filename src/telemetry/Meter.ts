import { Context, Effect, Layer, Metric } from "effect"
import { families, type Family, type FamilyName } from "./families.ts"
import { makeHistogram } from "./makeHistogram.ts"

/** What tells the series of one family apart. Every value is one of a few that the service itself chooses. */
export type Attributes = Readonly<Record<string, string>>

const register = <Input, State>(
  metric: Metric.Metric<Input, State>,
  context: Context.Context<never>,
  get: () => State
) => Metric.registerUnsafe(metric, context, { get, update: () => {}, modify: () => {} })

const make = Effect.gen(function* () {
  const context = yield* Effect.context()
  const removals = new Set<() => void>()
  yield* Effect.addFinalizer(() => Effect.sync(() => removals.forEach((remove) => remove())))
  /** The registry outlives what a series is read from. */
  const removable = ({ remove }: Metric.Registration) => {
    const removal = () => {
      removals.delete(removal)
      remove()
    }
    removals.add(removal)
    return removal
  }
  const optionsOf = (family: FamilyName, attributes: Attributes) => {
    const { description, unit }: Family = families[family]
    return { description, attributes: { ...attributes, unit } }
  }
  return {
    counter: (family: FamilyName, attributes: Attributes = {}) => {
      let count = 0
      const metric = Metric.counter(family, { ...optionsOf(family, attributes), incremental: true })
      register(metric, context, () => ({ count, incremental: true }))
      return () => void (count += 1)
    },
    histogram: (family: FamilyName, attributes: Attributes = {}) => {
      const { bounds = [] }: Family = families[family]
      const { record, state } = makeHistogram(bounds)
      register(Metric.histogram(family, { ...optionsOf(family, attributes), boundaries: bounds }), context, state)
      return record
    },
    counted: (family: FamilyName, attributes: Attributes, read: () => number) => {
      const metric = Metric.counter(family, { ...optionsOf(family, attributes), incremental: true })
      return removable(register(metric, context, () => ({ count: read(), incremental: true })))
    },
    gauge: (family: FamilyName, attributes: Attributes, read: () => number) =>
      removable(register(Metric.gauge(family, optionsOf(family, attributes)), context, () => ({ value: read() })))
  }
})

/** Makes series in Effect's registry. Each is made once and kept: finding it again costs more than an update. */
export class Meter extends Context.Service<
  Meter,
  {
    /** Returns what adds one. */
    readonly counter: (family: FamilyName, attributes?: Attributes) => () => void
    /** Returns what records a value. */
    readonly histogram: (family: FamilyName, attributes?: Attributes) => (value: number) => void
    /** A counter that is read when it is exported. Returns what removes it. */
    readonly counted: (family: FamilyName, attributes: Attributes, read: () => number) => () => void
    /** A gauge that is read when it is exported. Returns what removes it. */
    readonly gauge: (family: FamilyName, attributes: Attributes, read: () => number) => () => void
  }
>()("byok/Meter") {
  static readonly layer = Layer.effect(this, make)
}
