import { type Across, families, type Family } from "./families.ts"
import type { Reading, Series, Snapshot } from "./Snapshot.ts"

const combine: Readonly<Record<Across, (one: number, other: number) => number>> = {
  sum: (one, other) => one + other,
  max: Math.max,
  min: Math.min
}

const mergeReadings = (across: Across, one: Reading, other: Reading): Reading => {
  if (one.type === "histogram" && other.type === "histogram") {
    return {
      type: "histogram",
      buckets: one.buckets.map((below, index) => below + (other.buckets[index] ?? 0)),
      count: one.count + other.count,
      sum: one.sum + other.sum
    }
  }
  if (one.type === "histogram" || other.type === "histogram") return one
  return { type: one.type, value: combine[across](one.value, other.value) }
}

const nameOf = ({ attributes, family }: Series) =>
  JSON.stringify([family, ...Object.entries(attributes).sort(([one], [other]) => (one < other ? -1 : 1))])

/** What several processes show together: each series of any of them, once. */
export const mergeSnapshots = (snapshots: ReadonlyArray<Snapshot>): Snapshot => {
  const merged = new Map<string, Series>()
  for (const series of snapshots.flat()) {
    const name = nameOf(series)
    const known = merged.get(name)
    const { across }: Family = families[series.family]
    merged.set(
      name,
      known === undefined ? series : { ...series, reading: mergeReadings(across, known.reading, series.reading) }
    )
  }
  return Array.from(merged)
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([, series]) => series)
}

/** What is left of a process that has ended: sums that must not shrink. */
export const remainsOf = (snapshot: Snapshot): Snapshot => snapshot.filter(({ reading }) => reading.type !== "gauge")
