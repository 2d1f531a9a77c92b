import { join } from "node:path"
import { Effect } from "effect"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import type { Check } from "./Check.ts"
import { problemsOf } from "./problemsOf.ts"

export const promtool: Check = {
  piece: "prometheus/alerts.yaml by promtool",
  run: (deploy) =>
    Effect.gen(function* () {
      const { promtool } = yield* installedPrograms(["promtool"])
      const checked = yield* runProgram(promtool, ["check", "rules", join(deploy, "prometheus/alerts.yaml")])
      const tested = yield* runProgram(promtool, ["test", "rules", join(deploy, "prometheus/alerts.test.yaml")])
      return { problems: [...problemsOf(checked), ...problemsOf(tested)] }
    }),
  mistakes: [
    { file: "prometheus/alerts.yaml", text: "for: 1m", instead: "for: a minute" },
    { file: "prometheus/alerts.yaml", text: " unless on (job, instance) byok_ready", instead: "" },
    {
      file: "prometheus/alerts.yaml",
      text: ' or (up{job=~"(.*/)?byok"} == 1 unless on (job, instance) byok_ready)',
      instead: ""
    },
    { file: "prometheus/alerts.yaml", text: "> 0.01", instead: "> 0.5" },
    { file: "prometheus/alerts.yaml", text: ', http_route!~"/health/.*"', instead: "" }
  ]
}
