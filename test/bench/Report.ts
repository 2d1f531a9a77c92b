import type { Cell, Round } from "./Cell.ts"

export const medianOf = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = Math.floor(sorted.length / 2)
  return sorted.length % 2 === 1
    ? (sorted[middle] ?? Number.NaN)
    : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2
}

/** The median over the rounds of a contender's figure divided by another's in the same round. */
const ratioOf = (cell: Cell, one: string, other: string, figure: keyof Round): number => {
  const others = cell.rounds[other] ?? []
  return medianOf(
    (cell.rounds[one] ?? []).map((round, index) => round[figure] / (others[index]?.[figure] ?? Number.NaN))
  )
}

const round = (value: number, digits = 0) => (Number.isFinite(value) ? value.toFixed(digits) : "-")

/** A table in Markdown, with names in the first column and figures in the others. */
const tableFrom = (head: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>) =>
  [head, head.map((_, index) => (index === 0 ? "---" : "---:")), ...rows]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n")

/** A table for people: medians, and the rate as a ratio to the peer of the same round. */
export const tableOf = (cells: ReadonlyArray<Cell>, peer: string): string => {
  const costs = ["errors", "CPU µs server", "CPU µs database", "peak MiB"]
  const rows = cells.flatMap((cell) =>
    Object.entries(cell.rounds).map(([name, rounds]) => {
      const of = (figure: keyof Round) => medianOf(rounds.map((one) => one[figure]))
      return [
        `${cell.operation} ${cell.connections} ${name}`,
        round(of("rate")),
        round(ratioOf(cell, name, peer, "rate"), 2),
        round(of("p50"), 2),
        round(of("p99"), 2),
        String(rounds.reduce((sum, one) => sum + one.errors, 0)),
        round(of("nodeCpu")),
        round(of("postgresCpu")),
        round(of("memory"))
      ]
    })
  )
  return tableFrom(["", "req/s", `to ${peer}`, "p50 ms", "p99 ms", ...costs], rows)
}

/** A contender's figures as ratios to a peer's in the same rounds, one line for each number of connections. */
export const ratiosOf = (cells: ReadonlyArray<Cell>, name: string, peer: string): string => {
  const figures = ["rate", "p99", "nodeCpu", "postgresCpu", "memory"] as const
  const rows = cells.map((cell) => {
    const ratios = figures.map((figure) => round(ratioOf(cell, name, peer, figure), 2))
    const limit = round(ratioOf(cell, name, "pgbench", "rate"), 2)
    return [`${cell.operation} ${cell.connections}`, ...ratios, limit]
  })
  return tableFrom(["", "req/s", "p99", "CPU node", "CPU PostgreSQL", "peak memory", "req/s to pgbench"], rows)
}

/** Routed requests of one contender and another, each figure as `one / other, ratio`; one column a number of connections. */
export const gatewayTableOf = (cells: ReadonlyArray<Cell>, one: string, other: string): string => {
  const figures: ReadonlyArray<readonly [name: string, figure: keyof Round, digits: number]> = [
    ["routed requests per second", "rate", 0],
    ["p50 of the open, ms", "p50", 2],
    ["p99 of the open, ms", "p99", 1],
    ["CPU µs of Node.js", "nodeCpu", 0],
    ["CPU µs of PostgreSQL", "postgresCpu", 0],
    ["peak memory, MiB", "memory", 0],
    ["errors", "errors", 0]
  ]
  const rows = figures.map(([title, figure, digits]) => [
    title,
    ...cells.map((cell) => {
      const [own = "", others = ""] = [one, other].map((name) =>
        round(medianOf((cell.rounds[name] ?? []).map((each) => each[figure])), digits)
      )
      return `${own} / ${others}, ${round(ratioOf(cell, one, other, figure), 2)}`
    })
  ])
  return tableFrom(["Connections", ...cells.map(({ connections }) => String(connections))], rows)
}

/** CPU of node and PostgreSQL together per request, and its growth against the first contender in the same rounds. */
export const growthTableOf = (cells: ReadonlyArray<Cell>): string => {
  const cost = (one: Round) => one.nodeCpu + one.postgresCpu
  const rows = cells.flatMap((cell) => {
    const [smallest = []] = Object.values(cell.rounds)
    return Object.entries(cell.rounds).map(([name, rounds]) => {
      const growth = rounds.map((one, index) => cost(one) / cost(smallest[index] ?? one))
      const errors = rounds.reduce((sum, one) => sum + one.errors, 0)
      return [
        `${cell.operation}, ${name}`,
        round(medianOf(rounds.map(cost))),
        round(medianOf(growth), 2),
        String(errors)
      ]
    })
  })
  return tableFrom(["", "CPU µs per request", "to the smallest", "errors"], rows)
}

/** A table of the ladder's rungs, from the bare server to the whole HTTP side, each also as a multiple of the router. */
export const ladderTableOf = (ladder: Readonly<Record<string, ReadonlyArray<number>>>): string => {
  const rungs = Object.entries(ladder).map(([name, rounds]) => ({ name, cost: medianOf(rounds) }))
  const router = rungs[1]?.cost ?? Number.NaN
  const rows = rungs.map(({ cost, name }) => [name, round(cost, 1), round(cost / router, 2)])
  return tableFrom(["Rung", "CPU µs", "to the router"], rows)
}
