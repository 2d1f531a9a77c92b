/** The meaning of a colour: the service, a peer, or an expected failure. */
export interface Series {
  readonly name: string
  readonly tone: "service" | "peer" | "leanPeer" | "control"
}

/** One bar. `series` is an index into the chart's series. */
export interface Bar {
  readonly series: number
  readonly value: number
  /** The text at the end of the bar; by default, the rounded value. */
  readonly text?: string
}

/** Bars that are compared with one another, side by side. */
export interface Group {
  readonly name: string
  readonly bars: ReadonlyArray<Bar>
}

/** Groups of bars with a common scale, from zero. */
export interface Panel {
  readonly title: string
  readonly groups: ReadonlyArray<Group>
}

export interface Chart {
  readonly title: string
  readonly series: ReadonlyArray<Series>
  readonly panels: ReadonlyArray<Panel>
  /** Panels in a row. */
  readonly columns: number
  /** Room for the names of groups, and for the text at the end of a bar, in pixels. */
  readonly nameWidth: number
  readonly textWidth: number
}

const width = 960
const margin = 16
const barHeight = 13
const groupGap = 9
const headHeight = 64
const titleHeight = 30

/** Ours in colour, peers in greys. The reader's scheme decides, also inside an `<img>`. */
const style = `
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .panel { font-weight: 600 }
  .value { font-size: 11px; fill: #59636e }
  .axis { stroke: #d1d9e0 }
  .service { fill: #0969da } .peer { fill: #818b98 } .leanPeer { fill: #c3cad2 } .control { fill: #bf8700 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .value { fill: #9198a1 } .axis { stroke: #3d444d }
    .service { fill: #4493f8 } .peer { fill: #9198a1 } .leanPeer { fill: #4d5660 } .control { fill: #d29922 }
  }`

const escape = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")

const textAt = (x: number, y: number, content: string, attributes = "") =>
  `<text x="${x}" y="${y}" ${attributes}>${escape(content)}</text>`

const groupHeight = ({ bars }: Group) => bars.length * barHeight + groupGap

const panelHeight = ({ groups }: Panel) => titleHeight + groups.reduce((sum, group) => sum + groupHeight(group), 0)

const panelAt = (
  { columns, nameWidth, series: all, textWidth }: Chart,
  { groups, title }: Panel,
  left: number,
  top: number
) => {
  const room = (width - margin) / columns - margin - nameWidth - textWidth
  const largest = Math.max(1e-9, ...groups.flatMap(({ bars }) => bars.map(({ value }) => value)))
  const zero = left + nameWidth
  const parts = [textAt(left, top + 16, title, `class="panel"`)]
  let y = top + titleHeight
  for (const { bars, name } of groups) {
    const middle = y + (bars.length * barHeight) / 2 + 4
    parts.push(textAt(zero - 8, middle, name, `text-anchor="end"`))
    for (const { series, text, value } of bars) {
      const length = Math.max(1, (room * value) / largest)
      parts.push(
        `<rect class="${all[series]?.tone}" x="${zero}" y="${y}" width="${length.toFixed(1)}" height="${barHeight - 2}" rx="2"/>`,
        textAt(Math.round(zero + length + 5), y + 10, text ?? value.toFixed(0), `class="value"`)
      )
      y += barHeight
    }
    y += groupGap
  }
  return [
    `<line class="axis" x1="${zero}" x2="${zero}" y1="${top + titleHeight - 4}" y2="${y - groupGap + 2}"/>`,
    ...parts
  ]
}

/** Draws horizontal bars as SVG, in light and dark. */
export const barChart = (chart: Chart): string => {
  const { columns, panels, series, title } = chart
  const legend: Array<string> = []
  let x = margin
  for (const { name, tone } of series) {
    legend.push(`<rect class="${tone}" x="${x}" y="38" width="11" height="11" rx="2"/>`, textAt(x + 16, 48, name))
    x += 16 + name.length * 6.6 + 20
  }
  const drawn: Array<string> = []
  let top = headHeight
  for (let first = 0; first < panels.length; first += columns) {
    const row = panels.slice(first, first + columns)
    for (const [column, panel] of row.entries()) {
      const left = margin + (column * (width - margin)) / columns
      drawn.push(...panelAt(chart, panel, Math.round(left), top))
    }
    top += Math.max(...row.map(panelHeight)) + margin
  }
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top}" role="img">`,
    `<title>${escape(title)}</title>`,
    `<style>${style}</style>`,
    textAt(margin, 24, title, `class="title"`),
    ...legend,
    ...drawn,
    "</svg>",
    ""
  ].join("\n")
}
