/** How far the service counts rows: no count takes longer as a table grows. */
export const countLimit = 10_000
