import type { Reporter, TestModule } from "vitest/node"

/**
 * Says last which tests were skipped and why, which failed at first, and how many files are left to
 * `npm run test:slow`.
 */
export class Summary implements Reporter {
  readonly slowFiles: () => ReadonlyArray<string>
  constructor(slowFiles: () => ReadonlyArray<string>) {
    this.slowFiles = slowFiles
  }

  onTestRunEnd(modules: ReadonlyArray<TestModule>) {
    // Ignores tests that the command did not select.
    if (modules.some(({ project }) => project.config.testNamePattern !== undefined)) return
    const skipped = modules.flatMap((module) => Array.from(module.children.allTests("skipped")))
    const reasons = Map.groupBy(skipped, (test) => {
      const { note } = test.result() as { readonly note?: string }
      return note ?? /\(skipped: (.*?)\)( >|$)/.exec(test.fullName)?.[1] ?? test.fullName
    })
    const lines = Array.from(reasons, ([reason, tests]) => `${tests.length} skipped: ${reason}`)
    for (const test of modules.flatMap((module) => Array.from(module.children.allTests("passed")))) {
      if (test.diagnostic()?.flaky === true) lines.push(`passed at the second try only: ${test.fullName}`)
    }
    if (modules.length > 1 && !modules.some(({ project }) => project.name === "slow"))
      lines.push(`${this.slowFiles().length} files of slow tests left out: npm run test:slow`)
    // The counts of the default reporter follow the end of the run.
    process.once("exit", () => process.stdout.write(lines.map((line) => `${line}\n`).join("")))
  }
}
