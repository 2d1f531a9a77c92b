interface Sample {
  readonly count: number
  readonly mean: number
  readonly variance: number
}

const sampleOf = (values: ReadonlyArray<number>): Sample => {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  return { count: values.length, mean, variance: squares / (values.length - 1) }
}

/** Of several classes the values below this part of all values together: what lies above is the machine's doing. */
const kept = 0.9

/** The classes without outliers, by a limit that is the same for all. */
export const trimmed = (classes: ReadonlyMap<string, ReadonlyArray<number>>) => {
  const sorted = Array.from(classes.values())
    .flat()
    .sort((one, other) => one - other)
  const limit = sorted[Math.floor(sorted.length * kept)] ?? Infinity
  return new Map(Array.from(classes, ([name, values]) => [name, values.filter((value) => value < limit)]))
}

/** Whether the means of two classes differ: the difference, and Welch's t of it. */
export const compare = (one: ReadonlyArray<number>, other: ReadonlyArray<number>) => {
  const [left, right] = [sampleOf(one), sampleOf(other)]
  const difference = right.mean - left.mean
  return { difference, t: difference / Math.sqrt(left.variance / left.count + right.variance / right.count) }
}
