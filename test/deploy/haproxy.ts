import { join } from "node:path"
import { Effect } from "effect"
import { installedPrograms, programVariables } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import type { Check } from "./Check.ts"
import { problemsOf } from "./problemsOf.ts"

export const haproxy: Check = {
  piece: "postgresql/haproxy.cfg",
  run: (deploy) =>
    Effect.gen(function* () {
      const { haproxy } = yield* installedPrograms(["haproxy"])
      const file = join(deploy, "postgresql/haproxy.cfg")
      return { problems: problemsOf(yield* runProgram(haproxy, ["-c", "-f", file], { variables: programVariables() })) }
    }),
  mistakes: [
    { file: "postgresql/haproxy.cfg", text: "option httpchk", instead: "option httpcheck" },
    { file: "postgresql/haproxy.cfg", text: "shutdown-sessions", instead: "shutdown-session" }
  ]
}
