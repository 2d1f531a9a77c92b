/** For which keys the control takes longer. */
export const isDelayedHash = (hash: string): boolean => hash.endsWith("0")

/** For which credentials the control takes longer. */
export const isDelayedId = (id: string): boolean => id.endsWith("0")
