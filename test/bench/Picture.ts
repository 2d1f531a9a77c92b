import { barChart, type Panel, type Series } from "./barChart.ts"
import type { Cell, Round } from "./Cell.ts"
import { medianOf } from "./Report.ts"

/** The contenders to draw, each with a description. */
interface Drawn {
  readonly title: string
  readonly series: Readonly<Record<string, Series>>
}

const besidePeers: Drawn = {
  title: "byok beside two Fastify peers: medians on two cores shared with PostgreSQL and the load",
  series: {
    byok: { name: "byok", tone: "service" },
    fastify: { name: "Fastify, the same sealing and statements", tone: "peer" },
    lean: { name: "lean Fastify: one look-up, one AES-GCM, plain INSERT", tone: "leanPeer" }
  }
}

const figures = [
  { figure: "rate", title: "requests per second, more is better", digits: 0 },
  { figure: "p99", title: "p99 in ms, less is better", digits: 1 }
] as const

const panelOf = (
  cells: ReadonlyArray<Cell>,
  names: ReadonlyArray<string>,
  operation: Cell["operation"],
  figure: keyof Round,
  title: string,
  digits: number
): Panel => ({
  title: `${operation}: ${title}`,
  groups: cells
    .filter((cell) => cell.operation === operation)
    .map(({ connections, rounds }) => ({
      name: connections === 1 ? "1 connection" : `${connections} connections`,
      bars: names.flatMap((name, series) => {
        const measured = rounds[name]
        if (measured === undefined) return []
        const value = medianOf(measured.map((round) => round[figure]))
        return [{ series, value, text: value.toFixed(digits) }]
      })
    }))
})

/** Rates and p99 of every cell, medians over the rounds. */
export const pictureOf = (cells: ReadonlyArray<Cell>, { series, title }: Drawn = besidePeers): string =>
  barChart({
    title,
    series: Object.values(series),
    columns: 2,
    nameWidth: 104,
    textWidth: 56,
    panels: Array.from(new Set(cells.map(({ operation }) => operation))).flatMap((operation) =>
      figures.map(({ digits, figure, title }) => panelOf(cells, Object.keys(series), operation, figure, title, digits))
    )
  })
