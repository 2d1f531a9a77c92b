import { readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { parse } from "yaml"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import { broken, type Check, problemsOf } from "./Check.ts"
import { readQuery } from "./readQuery.ts"

interface Rules {
  readonly groups: ReadonlyArray<{
    readonly rules: ReadonlyArray<{
      readonly alert: string
      readonly expr: string
      readonly annotations: { readonly description?: string }
    }>
  }>
}

interface RuleTests {
  readonly tests: ReadonlyArray<{
    readonly alert_rule_test: ReadonlyArray<{ readonly alertname: string; readonly exp_alerts?: unknown }>
  }>
}

/** That the alerts name series of the service and say what to do, and that each is tested both ways. */
export const alerts: Check = {
  piece: "prometheus/alerts.yaml",
  run: (deploy) => {
    const read = (name: string): unknown => parse(readFileSync(join(deploy, "prometheus", name), "utf8"))
    const rules = (read("alerts.yaml") as Rules).groups.flatMap((group) => group.rules)
    const tests = (read("alerts.test.yaml") as RuleTests).tests.flatMap(({ alert_rule_test }) => alert_rule_test)
    return rules.flatMap(({ alert, annotations, expr }) => {
      const own = tests.filter(({ alertname }) => alertname === alert)
      return [
        ...readQuery(expr).problems,
        ...broken(
          [own.some(({ exp_alerts }) => exp_alerts !== undefined), "no test in which it fires"],
          [own.some(({ exp_alerts }) => exp_alerts === undefined), "no test in which it does not"],
          [annotations.description !== undefined, "no description of what to do"]
        )
      ].map((problem) => `${alert}: ${problem}`)
    })
  },
  mistakes: [
    ["prometheus/alerts.yaml", "byok_ready == 0", "byok_readiness == 0"],
    ["prometheus/alerts.yaml", "by (job, lane) (rate(byok_db", "by (job, lanes) (rate(byok_db"],
    ["prometheus/alerts.yaml", "alert: ByokMemory", "alert: ByokRam"],
    ["prometheus/alerts.yaml", "description: A rollout", "runbook: A rollout"]
  ]
}

export const promtool: Check = {
  piece: "prometheus/alerts.yaml by promtool",
  run: (deploy) =>
    Effect.gen(function* () {
      const { promtool } = yield* installedPrograms(["promtool"])
      const checked = yield* runProgram(promtool, ["check", "rules", join(deploy, "prometheus/alerts.yaml")])
      const tested = yield* runProgram(promtool, ["test", "rules", join(deploy, "prometheus/alerts.test.yaml")])
      return [...problemsOf(checked), ...problemsOf(tested)]
    }),
  mistakes: [
    ["prometheus/alerts.yaml", "for: 1m", "for: a minute"],
    ["prometheus/alerts.yaml", " unless on (job, instance) byok_ready", ""],
    ["prometheus/alerts.yaml", ' or (up{job=~"(.*/)?byok"} == 1 unless on (job, instance) byok_ready)', ""],
    ["prometheus/alerts.yaml", "> 0.01", "> 0.5"],
    ["prometheus/alerts.yaml", ', http_route!~"/health/.*|/v1/forward/.*|/v1/refused"', ""]
  ]
}
