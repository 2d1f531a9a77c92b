/** Slugs are compared verbatim (E18). What follows are the differences that people overlook, from the smallest on. */
const differences: ReadonlyArray<{
  readonly without: (slug: string) => string
  readonly why: (listed: string, model: string) => string
}> = [
  { without: (slug) => slug, why: () => "case and blanks count" },
  {
    without: (slug) => slug.slice(slug.indexOf("/") + 1),
    why: (listed, model) =>
      !listed.includes("/")
        ? "a slug needs its vendor"
        : model.includes("/")
          ? "the vendor is another one"
          : "the request's model lacks its vendor"
  },
  { without: (slug) => slug.replace(/:.*$/s, ""), why: () => "a variant is a model of its own" },
  {
    without: (slug) => slug.slice(slug.indexOf("/") + 1).replace(/:.*$/s, ""),
    why: () => "vendor and variant count"
  }
]

const plain = (slug: string) => slug.trim().toLowerCase()

/** The member of an allow list that is almost the model, and what makes it another one; undefined if none is close. */
export const nearMiss = (allowed: ReadonlyArray<string>, model: string): string | undefined => {
  for (const { why, without } of differences) {
    const listed = allowed.find((slug) => without(plain(slug)) === without(plain(model)))
    if (listed !== undefined) return `it has ${listed}: ${why(listed, model)}`
  }
  return undefined
}
