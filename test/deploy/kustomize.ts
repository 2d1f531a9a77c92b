import { join } from "node:path"
import { Effect } from "effect"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { runProgram } from "../support/process/runNode.ts"
import type { Check } from "./Check.ts"
import { problemsOf } from "./problemsOf.ts"

export const kustomize: Check = {
  piece: "kubernetes by kubectl kustomize",
  run: (deploy) =>
    Effect.gen(function* () {
      const { kubectl } = yield* installedPrograms(["kubectl"])
      const built = yield* Effect.forEach(["kubernetes", "kubernetes/migration"], (directory) =>
        Effect.map(runProgram(kubectl, ["kustomize", join(deploy, directory)]), (finished) => [
          ...problemsOf(finished),
          ...(/image: registry\.example\.com\/byok:/.test(finished.stdout) ? [] : [`${directory} names no image`])
        ])
      )
      return { problems: built.flat() }
    }),
  mistakes: [
    { file: "kubernetes/kustomization.yaml", text: "- service.yaml", instead: "- services.yaml" },
    { file: "kubernetes/kustomization.yaml", text: "newTag", instead: "newVersion" },
    { file: "kubernetes/migration/kustomization.yaml", text: "- name: byok", instead: "- name: byoks" },
    { file: "kubernetes/migration/job.yaml", text: "kind: Job\n", instead: "" }
  ]
}
