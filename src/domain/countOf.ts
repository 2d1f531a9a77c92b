import { countLimit } from "./countLimit.ts"

/** A count that went as far as one more than the limit, in words. */
export const countOf = (count: number): string =>
  count > countLimit ? `more than ${countLimit.toLocaleString("en")}` : String(count)
