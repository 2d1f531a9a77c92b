import { mkdirSync, writeFileSync } from "node:fs"
import { parseArgs } from "node:util"
import { Cause, Effect, Exit } from "effect"
import { Skipped } from "../support/process/installedPrograms.ts"
import { pictureOf } from "./Picture.ts"
import { Findings, type Row } from "./Row.ts"
import { rows } from "./rows.ts"

const { values } = parseArgs({
  options: { only: { type: "string" }, picture: { type: "string", default: "test/drill/results/latest.svg" } }
})
const wanted = values.only?.split(",")

/** A control runs with the fault it follows. */
const idsOf = (index: number) => rows.slice(0, index + 1).findLast(({ id }) => id !== "control")?.id ?? ""
const known = [...new Set(rows.map((_, index) => idsOf(index)))]
if (wanted?.every((id) => known.includes(id)) === false) {
  console.error(`--only takes some of ${known.join(",")}`)
  process.exit(2)
}
const chosen = rows.filter((_, index) => wanted === undefined || wanted.includes(idsOf(index)))

interface Result {
  readonly id: string
  readonly fault: string
  readonly verdict: "as wanted" | "not" | "skipped"
  readonly acked: number
  readonly unknown: number
  readonly lost: number
  readonly longestGap: number
  readonly seconds: number
  readonly notes: ReadonlyArray<string>
}

/** An interrupted drill leaves no server and no volume behind. */
const interrupted = new AbortController()
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort())

const runRow = async ({ fault, id, run }: Row): Promise<Result> => {
  const findings = new Findings()
  const began = performance.now()
  const exit = await Effect.runPromiseExit(Effect.scoped(run(findings)), { signal: interrupted.signal })
  const failure = Exit.isFailure(exit) ? Cause.squash(exit.cause) : undefined
  const skipped = failure instanceof Skipped
  if (Exit.isFailure(exit) && !skipped) findings.wrong.push(Cause.pretty(exit.cause).split("\n", 1).join())
  const { acked, longestGap, unknown } = findings.ledger
  return {
    id,
    fault,
    verdict: skipped ? "skipped" : findings.wrong.length > 0 ? "not" : "as wanted",
    acked: acked.length,
    unknown: unknown.length,
    lost: findings.lost,
    longestGap: Math.round(longestGap),
    seconds: Math.round((performance.now() - began) / 100) / 10,
    notes: skipped ? [failure.why] : [...findings.wrong.map((text) => `MISSED: ${text}`), ...findings.figures]
  }
}

const line = (cells: ReadonlyArray<unknown>) => `| ${cells.join(" | ")} |`

const tableOf = (results: ReadonlyArray<Result>) => {
  const head = ["", "Fault", "", "Acked", "Unknown", "Lost", "Longest gap, ms", "Shown"]
  const body = results.map(({ acked, fault, id, longestGap, lost, notes, unknown, verdict }) => {
    const counts = verdict === "skipped" ? ["", "", "", ""] : [acked, unknown, lost, longestGap]
    return line([id, fault, verdict, ...counts, notes.join("; ").replaceAll("\n", " ")])
  })
  const rule = head.map((_, index) => (index > 2 && index < 7 ? "---:" : "---"))
  return [line(head), line(rule), ...body].join("\n")
}

const results: Array<Result> = []
for (const row of chosen) {
  if (interrupted.signal.aborted) break
  const result = await runRow(row)
  results.push(result)
  console.error(`${result.verdict}: ${row.id}, ${row.fault} (${result.seconds} s)`)
  for (const note of result.verdict === "as wanted" ? [] : result.notes) console.error(`  ${note}`)
}
console.log(`\n${tableOf(results)}\n`)
mkdirSync("test/drill/results", { recursive: true })
writeFileSync(
  "test/drill/results/latest.json",
  JSON.stringify({ date: new Date(), node: process.version, results }, null, 1)
)
writeFileSync(values.picture, pictureOf(results))

const count = (verdict: Result["verdict"]) => results.filter((result) => result.verdict === verdict).length
const missed = count("not")
const interruption = interrupted.signal.aborted ? ", interrupted" : ""
console.log(
  `${results.length} rows: ${count("as wanted")} as wanted, ${missed} not, ${count("skipped")} skipped${interruption}`
)
process.exit(missed > 0 || interrupted.signal.aborted ? 1 : 0)
