import { assert } from "@effect/vitest"

/** The program ended with help and this sentence on standard error, and with nothing on standard output. */
export const assertUsage = (
  told: { readonly code: number | null; readonly stdout: string; readonly stderr: string },
  sentence: string
) => {
  const { code, stderr, stdout } = told
  assert.deepStrictEqual({ code, stdout }, { code: 2, stdout: "" })
  assert.match(stderr, /^DESCRIPTION\n.*\n\nUSAGE\n {2}byok /)
  const [, said] = stderr.split("\nERROR\n")
  assert.strictEqual(said, `  ${sentence}\n`)
}
