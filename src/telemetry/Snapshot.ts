import { type Context, Metric } from "effect"
import { families, type FamilyName } from "./families.ts"

/** What a series shows; the counts of `buckets` are cumulative. */
export type Reading =
  | { readonly type: "counter" | "gauge"; readonly value: number }
  | {
      readonly type: "histogram"
      readonly buckets: ReadonlyArray<number>
      readonly count: number
      readonly sum: number
    }

export interface Series {
  readonly family: FamilyName
  readonly attributes: Readonly<Record<string, string>>
  readonly reading: Reading
}

/** The series of one process. */
export type Snapshot = ReadonlyArray<Series>

const isOurs = (id: string): id is FamilyName => Object.hasOwn(families, id)

const readingOf = (metric: Metric.Metric.Snapshot): Reading | undefined => {
  switch (metric.type) {
    case "Counter":
      return { type: "counter", value: Number(metric.state.count) }
    case "Gauge":
      return { type: "gauge", value: Number(metric.state.value) }
    case "Histogram": {
      const { buckets, count, sum } = metric.state
      return { type: "histogram", buckets: buckets.map(([, below]) => below), count, sum }
    }
    default:
      return undefined
  }
}

/** Reads the service's own series from Effect's registry. */
export const snapshotOf = (context: Context.Context<never>): Snapshot =>
  Metric.snapshotUnsafe(context).flatMap((metric) => {
    const reading = readingOf(metric)
    if (!isOurs(metric.id) || reading === undefined) return []
    return [{ family: metric.id, attributes: metric.attributes ?? {}, reading }]
  })
