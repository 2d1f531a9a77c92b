import type { Finished } from "../support/process/runNode.ts"

/** What a program that checks a file reports, if its exit code says that something is wrong. */
export const problemsOf = ({ code, stderr, stdout }: Finished): ReadonlyArray<string> => {
  if (code === 0) return []
  const lines = `${stdout}\n${stderr}`.split("\n").filter((line) => line.trim() !== "")
  return lines.length > 0 ? lines.slice(-10) : [`exit code ${code}`]
}
