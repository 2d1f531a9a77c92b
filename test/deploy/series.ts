import { families, type Family, prometheusName } from "../../src/runtime/families.ts"

/** Every series of the service, by the name that Prometheus gets, with the labels that it gets. */
export const series = new Map(
  Object.entries<Family>(families).map(([name, family]) => {
    const labels = family.attributes.map((attribute) => attribute.replaceAll(".", "_"))
    return [prometheusName(name, family), { ...family, labels, isHistogram: family.type === "histogram" }] as const
  })
)
