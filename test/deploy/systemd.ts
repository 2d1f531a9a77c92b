import { join } from "node:path"
import { Effect } from "effect"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import { type Check, problemsOf } from "./Check.ts"

/** The exposure that systemd allows the unit at most, in tenths. */
const threshold = 15

export const systemd: Check = {
  piece: "systemd/byok@.service",
  run: (deploy) =>
    Effect.gen(function* () {
      const { "systemd-analyze": analyze } = yield* installedPrograms(["systemd-analyze"])
      const unit = join(deploy, "systemd/byok@.service")
      const { stderr } = yield* runProgram(analyze, ["verify", unit])
      // Where byok and Node.js are is the machine's affair.
      const mistakes = stderr.split("\n").filter((line) => line !== "" && !/is not executable/.test(line))
      const security = yield* runProgram(analyze, [
        ...["security", "--offline=true", `--threshold=${threshold}`, "--no-pager"],
        unit
      ])
      const [, exposure = "unknown"] = /exposure level for \S+ (\S+)/.exec(security.stdout) ?? []
      return {
        problems: [...mistakes, ...problemsOf(security).slice(-1)],
        figures: [`exposure ${exposure}`]
      }
    }),
  mistakes: [
    { file: "systemd/byok@.service", text: "ProtectSystem=strict", instead: "ProtectSystems=strict" },
    { file: "systemd/byok@.service", text: "CapabilityBoundingSet=\n", instead: "" },
    { file: "systemd/byok@.service", text: "Restart=always", instead: "Restart=sometimes" },
    { file: "systemd/byok@.service", text: "ExecStart=/usr", instead: "ExecStart=usr" }
  ]
}
