/** Only the fastest twentieth of each class counts, as other work of the machine only adds time. */
const kept = 0.05

/** The mean of the fastest, and the square of its error: its variance counts each other value as the slowest kept one. */
const trimmedMean = (given: ReadonlyArray<number>) => {
  const sorted = given.toSorted((one, other) => one - other)
  const count = Math.floor(sorted.length * kept)
  const limit = sorted[count - 1] ?? NaN
  const levelled = sorted.map((value) => Math.min(value, limit))
  const sum = (values: ReadonlyArray<number>) => values.reduce((total, value) => total + value, 0)
  const centre = sum(levelled) / levelled.length
  const squares = sum(levelled.map((value) => (value - centre) ** 2))
  return { mean: sum(sorted.slice(0, count)) / count, squaredError: squares / (count * (count - 1)) }
}

/** By how much the second class is slower, and Welch's t of that for trimmed means (Yuen 1974). */
export const compare = (one: ReadonlyArray<number>, other: ReadonlyArray<number>) => {
  const [left, right] = [trimmedMean(one), trimmedMean(other)]
  const difference = right.mean - left.mean
  return { difference, t: difference / Math.sqrt(left.squaredError + right.squaredError) }
}
