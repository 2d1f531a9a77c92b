import type { Metric } from "effect"

/**
 * A histogram of cumulative counts. Effect's own counts in 32 bits, which a busy service overflows within days; these
 * are exact up to 2^53.
 */
export const makeHistogram = (bounds: ReadonlyArray<number>) => {
  const counts = new Float64Array(bounds.length + 1)
  let [count, sum, min, max] = [0, 0, Number.MAX_VALUE, -Number.MAX_VALUE]
  return {
    record: (value: number): void => {
      let index = 0
      while (index < bounds.length && value > (bounds[index] ?? 0)) index += 1
      counts[index] = (counts[index] ?? 0) + 1
      count += 1
      sum += value
      if (value < min) min = value
      if (value > max) max = value
    },
    state: (): Metric.HistogramState => {
      let below = 0
      const buckets = bounds.map((bound, index): [number, number] => [bound, (below += counts[index] ?? 0)])
      return { buckets, count, sum, min, max }
    }
  }
}
