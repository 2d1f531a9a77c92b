import { leakSearch } from "./leakSearch.ts"

/** The first of the secrets of which a text holds any 9 characters in a row, in whatever form. */
export const leakOf = (text: string, secrets: ReadonlyArray<string>): string | undefined => {
  const hits = leakSearch(Object.fromEntries(secrets.map((secret) => [secret, secret])))(text)
  return secrets.find((secret) => hits[secret] !== undefined)
}
