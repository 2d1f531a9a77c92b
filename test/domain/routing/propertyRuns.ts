/** Failures caused by a mutant are not shrunk. */
const shrinks = process.env["MUTATION_ROOT"] === undefined ? {} : { maxShrinks: 0 }

/** Options of a property that is tried on so many cases. */
export const casesOf = (runs: number) => ({ arbitrary: { runs, ...shrinks }, timeout: 600_000 })

/** How many cases a law of routing is tried on: `PROPERTY_RUNS`, or 2,000. */
export const propertyRuns = casesOf(Number(process.env["PROPERTY_RUNS"] || 2000))
