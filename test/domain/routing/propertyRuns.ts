/** How many cases a law of routing is tried on: `PROPERTY_RUNS`, or 2,000. */
const runs = Number(process.env["PROPERTY_RUNS"] || 2000)

export const propertyRuns = { arbitrary: { runs }, timeout: 600_000 }
