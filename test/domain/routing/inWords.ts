import type { Plan, Step } from "../../../src/domain/routing/Plan.ts"

/** A plan as a reader compares it: reasons by name, in no order. */
export interface PlanInWords {
  readonly steps: ReadonlyArray<string>
  /** On each credential in order of trial: its section, its position and why it is not used. */
  readonly verdicts: ReadonlyArray<string>
  /** By provider: the position of its shared endpoint and why it is not used. */
  readonly shared: Readonly<Record<string, string>>
  readonly retry_at: number | null
}

const stepInWords = (step: Step) => {
  if (step._tag === "Shared") return `${step.provider} shared`
  const { credential_id, key_version, probing, provider, region, row, section } = step
  return [provider, section, credential_id, `v${key_version}`, `row ${row}`, region, probing].join(" ")
}

/** A verdict as `position: reasons`. */
export const verdictInWords = (position: number | null, reasons: ReadonlyArray<string>) =>
  `${position ?? "none"}: ${reasons.toSorted().join(", ")}`

export const inWords = ({ providers, retry_at, steps }: Plan): PlanInWords => ({
  steps: steps.map(stepInWords),
  verdicts: providers.flatMap(({ credentials }) =>
    credentials.map(({ credential_id, exclusions, position, section }) => {
      const reasons = exclusions.map(({ reason }) => reason)
      return `${credential_id} ${section} ${verdictInWords(position, reasons)}`
    })
  ),
  shared: Object.fromEntries(
    providers.map(({ provider, shared }) => [
      provider,
      verdictInWords(
        shared.position,
        shared.removed.map((why) => ("credential_id" in why ? `${why.reason} ${why.credential_id}` : why.reason))
      )
    ])
  ),
  retry_at
})
