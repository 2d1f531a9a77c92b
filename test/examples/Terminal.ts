/** A command that was run, and what it printed. */
export interface Typed {
  readonly command: string
  readonly printed: string
}

const columns = 104
const [width, lineHeight, character] = [columns * 8.4 + 48, 21, 8.4]

const style = `
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1f2328; white-space: pre }
  .frame { fill: #f6f8fa; stroke: #d1d9e0 } .dot { fill: #d1d9e0 }
  .prompt { fill: #59636e } .note { fill: #59636e } .command { font-weight: 600 } .good { fill: #1a7f37 } .bad { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .frame { fill: #151b23; stroke: #3d444d } .dot { fill: #3d444d }
    .prompt { fill: #9198a1 } .note { fill: #9198a1 } .good { fill: #3fb950 } .bad { fill: #f0883e }
  }`

const escape = (text: string) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")

const toneOf = (line: string) => (/succeeded|own key/.test(line) ? "good" : /rate/.test(line) ? "bad" : "")

/** Breaks a printed line where the terminal would. */
const wrap = (line: string): ReadonlyArray<string> =>
  line.length <= columns ? [line] : [line.slice(0, columns), ...wrap(line.slice(columns))]

/** Draws a session in a terminal as SVG, in light and dark. Comments of a command stand above it. */
export const terminalOf = (title: string, session: ReadonlyArray<Typed>): string => {
  const lines = session.flatMap(({ command, printed }) => [
    ...command.split("\n").map((text) => {
      if (text.startsWith("#")) return { text, tone: "note" }
      return { text: text.startsWith(" ") ? text : `$ ${text}`, tone: "command" }
    }),
    ...printed
      .trimEnd()
      .split("\n")
      .flatMap(wrap)
      .map((text) => ({ text, tone: toneOf(text) })),
    { text: "", tone: "" }
  ])
  const height = (lines.length - 1) * lineHeight + 64
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img">`,
    `<title>${escape(title)}</title>`,
    `<style>${style}</style>`,
    `<rect class="frame" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>`,
    ...[24, 44, 64].map((x) => `<circle class="dot" cx="${x}" cy="22" r="6"/>`),
    ...lines.flatMap(({ text, tone }, index) => {
      if (text === "") return []
      const long = text.length * character
      return [
        `<text x="24" y="${58 + index * lineHeight}" class="${tone}" textLength="${long.toFixed(1)}">${escape(text)}</text>`
      ]
    }),
    "</svg>",
    ""
  ].join("\n")
}
