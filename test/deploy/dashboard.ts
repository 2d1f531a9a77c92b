import { readFileSync } from "node:fs"
import { join } from "node:path"
import { broken, type Check } from "./Check.ts"
import { readQuery } from "./readQuery.ts"
import { series } from "./series.ts"

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly datasource?: { readonly uid: string }
  readonly targets?: ReadonlyArray<{ readonly expr: string; readonly legendFormat: string }>
}

interface Dashboard {
  readonly panels: ReadonlyArray<Panel>
  readonly templating: {
    readonly list: ReadonlyArray<{ readonly name: string; readonly query: string | { readonly query: string } }>
  }
}

const overlaps = (a: Panel["gridPos"], b: Panel["gridPos"]) =>
  a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h

const problemsOf = ({ panels, templating }: Dashboard): ReadonlyArray<string> => {
  const variables = templating.list.map(({ name }) => name)
  const asked = new Set<string>()
  const read = (title: string, text: string, legend = "") => {
    const query = readQuery(text)
    query.series.forEach((name) => asked.add(name.replace(/_(bucket|sum|count)$/, "")))
    const used = Array.from(text.matchAll(/\$(\w+)/g), ([, name = ""]) => name)
    const shown = Array.from(legend.matchAll(/\{\{(\w+)\}\}/g), ([, name = ""]) => name)
    return [
      ...query.problems,
      ...used
        .filter((name) => !name.startsWith("__") && !variables.includes(name))
        .map((name) => `there is no variable ${name}`),
      ...shown.filter((name) => !new RegExp(`by \\([^)]*\\b${name}\\b`).test(text)).map((name) => `no label ${name}`)
    ].map((problem) => `${title}: ${problem}`)
  }
  const queries = panels.flatMap(({ targets = [], title }) =>
    targets.flatMap(({ expr, legendFormat }) => read(title, expr, legendFormat))
  )
  const ofVariables = templating.list.flatMap(({ name, query }) => {
    if (typeof query === "string") return []
    const [, selector = "", label = ""] = /^label_values\((.+), (\w+)\)$/.exec(query.query) ?? []
    return read(name, `count by (${label}) (${selector})`)
  })
  const ids = panels.map(({ id }) => id)
  return [
    ...queries,
    ...ofVariables,
    ...Array.from(series.keys())
      .filter((name) => !asked.has(name))
      .map((name) => `no panel shows ${name}`),
    ...ids.filter((id, index) => ids.indexOf(id) !== index).map((id) => `two panels have the id ${id}`),
    ...panels.flatMap((panel, index) => {
      const { datasource, gridPos, title, type } = panel
      const others = panels.slice(index + 1).filter((other) => overlaps(gridPos, other.gridPos))
      return [
        ...others.map((other) => `${title} lies on ${other.title}`),
        ...broken(
          [gridPos.x + gridPos.w <= 24, `${title} is too wide`],
          [type === "row" || datasource?.uid === "${datasource}", `${title} has a data source of its own`]
        )
      ]
    })
  ]
}

export const dashboard: Check = {
  piece: "grafana/byok.json",
  run: (deploy) => {
    const text = readFileSync(join(deploy, "grafana/byok.json"), "utf8")
    try {
      return problemsOf(JSON.parse(text) as Dashboard)
    } catch (invalid) {
      return [String(invalid)]
    }
  },
  mistakes: [
    ["grafana/byok.json", '"panels": [', '"panels": [,'],
    ["grafana/byok.json", "byok_db_queue_depth", "byok_db_queue_length"],
    ["grafana/byok.json", "sum by (lane)", "sum by (queue)"],
    ["grafana/byok.json", "{{kek_id}}", "{{kek}}"],
    ["grafana/byok.json", "$instance", "$instances"],
    ["grafana/byok.json", "sum(byok_ready{", "sum(byok_ready({"],
    ["grafana/byok.json", '"id": 2', '"id": 3'],
    ["grafana/byok.json", "max(byok_audit_unsealed_entries{", "max(byok_kek_wraps{"],
    ["grafana/byok.json", '"x": 4', '"x": 3']
  ]
}
