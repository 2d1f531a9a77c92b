/** How far the service counts rows: no count takes longer as a table grows. */
export const countLimit = 10_000

/** A count that went as far as one more than the limit, in words. */
export const countOf = (count: number): string =>
  count > countLimit ? `more than ${countLimit.toLocaleString("en")}` : String(count)
