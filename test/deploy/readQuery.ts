import { parser } from "@prometheus-io/lezer-promql"
import { series } from "./series.ts"

/** Labels that Prometheus adds to every series of a target. */
const ofTarget = ["job", "instance"]

/** The series that Prometheus makes for every target. */
const made = "up"

/** The labels of each series as it is stored: a histogram is three. */
const labelsOf = new Map(
  Array.from(series).flatMap(
    ([name, { isHistogram, labels }]): ReadonlyArray<readonly [string, ReadonlyArray<string>]> =>
      isHistogram
        ? [
            [`${name}_bucket`, [...labels, "le"]],
            [`${name}_sum`, labels],
            [`${name}_count`, labels]
          ]
        : [[name, labels]]
  )
)
labelsOf.set(made, [])

export interface Query {
  readonly text: string
  /** Series of the service that it names. */
  readonly series: ReadonlyArray<string>
  readonly problems: ReadonlyArray<string>
}

/** Whether a query can be read, and names series and labels that the service has. */
export const readQuery = (query: string): Query => {
  const text = query.replaceAll("$__rate_interval", "5m")
  const names = new Set<string>()
  const labels = new Set<string>()
  const problems: Array<string> = []
  parser.parse(text).iterate({
    enter: ({ from, name, node, to }) => {
      const word = text.slice(from, to)
      if (node.type.isError) problems.push(`cannot be read near ${text.slice(Math.max(0, from - 10), to + 10)}`)
      if (name === "Identifier") names.add(word)
      if (name === "LabelName") labels.add(word)
    }
  })
  const known = [...names].flatMap((name) => labelsOf.get(name) ?? [])
  return {
    text,
    series: [...names].filter((name) => name !== made),
    problems: [
      ...problems,
      ...[...names].filter((name) => !labelsOf.has(name)).map((name) => `there is no series ${name}`),
      ...[...labels]
        .filter((label) => ![...known, ...ofTarget].includes(label))
        .map((label) => `no series of the query has the label ${label}`)
    ]
  }
}
