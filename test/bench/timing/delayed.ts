/** For which hashes of keys, and ids of credentials, the control takes longer. */
export const isDelayed = (hashOrId: string): boolean => hashOrId.endsWith("0")
