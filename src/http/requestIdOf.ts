import { randomUUID } from "node:crypto"

/** The request's own id if it is 1 to 128 characters of `[A-Za-z0-9._-]`, else a new one (D12). */
export const requestIdOf = (given: string | undefined): string =>
  given !== undefined && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : randomUUID()
