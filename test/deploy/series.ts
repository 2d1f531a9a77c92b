import { families, type Family } from "../../src/telemetry/families.ts"

const all: ReadonlyArray<Family> = Object.values(families)

/** Every series of the service, by the name that Prometheus gets, with the labels that it gets. */
export const series = new Map(
  all.map(({ attributes, prometheus, type }) => {
    const labels = attributes.map((attribute) => attribute.replaceAll(".", "_"))
    return [prometheus, { labels, isHistogram: type === "histogram" }] as const
  })
)
