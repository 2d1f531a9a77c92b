import type { Explanation } from "../domain/routing/Explanation.ts"
import { printable } from "./printable.ts"

type ProviderVerdicts = Explanation["providers"][number]
type Step = Explanation["steps"][number]

/** Lines of cells, the columns aligned; the last one is as long as it is. */
const aligned = (given: ReadonlyArray<ReadonlyArray<string>>): ReadonlyArray<string> => {
  const rows = given.map((row) => row.map(printable))
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows.map((row) =>
    `  ${row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0))).join("  ")}`.trimEnd()
  )
}

const stepCells = (step: Step, index: number) => {
  if (step.kind === "shared") return [String(index + 1), step.provider, "shared", "", "capacity of the gateway"]
  const { credential_id, label, name, on_trial, provider, region, section } = step
  const notes = [
    "own key",
    ...(section === "fallback" ? ["fallback"] : []),
    ...(region === null ? [] : [`region ${region}`]),
    ...(on_trial ? ["on trial: one request at a time"] : [])
  ]
  return [String(index + 1), provider, name ?? credential_id, label, notes.join(", ")]
}

/** Where removed shared capacity would have been: before the provider's fallback keys, else after all steps. */
const placeOf = (steps: ReadonlyArray<Step>, provider: string) => {
  const fallback = steps.findIndex(
    (step) => step.kind === "own" && step.provider === provider && step.section === "fallback"
  )
  return fallback < 0 ? steps.length : fallback
}

const isRemoved = ({ shared }: ProviderVerdicts) => shared.position === null

/** An explanation for a person: the attempts in order, then every credential that is not used with all its reasons. */
export const explanationLines = ({ model, providers, retry_at, steps }: Explanation): ReadonlyArray<string> => {
  const removedBefore = (index: number) =>
    providers
      .filter((one) => isRemoved(one) && placeOf(steps, one.provider) === index)
      .map(({ provider, shared }) => {
        const reasons = shared.removed.map(({ message }) => message).join("; ")
        return ["-", provider, "shared", "", `removed: ${reasons}`]
      })
  const used = [...steps, undefined].flatMap((step, index) => [
    ...removedBefore(index),
    ...(step === undefined ? [] : [stepCells(step, index)])
  ])
  const unused = providers.flatMap(({ credentials, provider }) =>
    credentials
      .filter(({ position }) => position === null)
      .flatMap(({ credential_id, excluded, label, name }) =>
        excluded.map((exclusion, index) => {
          const hint = exclusion.reason === "model_not_allowed" ? exclusion.hint : undefined
          const sentence = hint === undefined ? exclusion.message : `${exclusion.message} (${hint})`
          return index === 0 ? [provider, name ?? credential_id, label, sentence] : ["", "", "", sentence]
        })
      )
  )
  return [
    printable(model),
    ...aligned(used),
    ...(unused.length === 0 ? [] : ["not used", ...aligned(unused)]),
    ...(steps.length === 0 ? ["Nothing serves this request."] : []),
    ...(retry_at === null
      ? []
      : [`The first key is tried again at ${new Date(retry_at.epochMilliseconds).toISOString()}.`])
  ]
}
