import type { Plan, Step } from "../../../src/domain/routing/Plan.ts"
import type { Row, RoutingCase, Target } from "./RoutingCase.ts"

/** A plan as a reader compares it: reasons by name, in no order. */
interface PlanInWords {
  readonly steps: ReadonlyArray<string>
  /** On each credential in order of trial: its section, its position and why it is not used. */
  readonly verdicts: ReadonlyArray<string>
  /** By provider: the position of its shared endpoint and why it is not used. */
  readonly shared: Readonly<Record<string, string>>
  readonly retry_at: number | null
}

const stepInWords = (step: Step) => {
  if (step._tag === "Shared") return `${step.provider} shared`
  const { credential_id, key_version, on_trial, provider, region, row, section } = step
  return [provider, section, credential_id, `v${key_version}`, `row ${row}`, region, on_trial].join(" ")
}

/** A verdict as `position: reasons`. */
const verdictInWords = (position: number | null, reasons: ReadonlyArray<string>) =>
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

const isIn = (list: ReadonlyArray<string> | null, value: string | null) =>
  list === null || list.some((member) => member === value)

const namesOf = (holds: Readonly<Record<string, boolean>>) => Object.keys(holds).filter((name) => holds[name])

/** The regional hosts that an account which declares a region, or none, may serve at an endpoint. */
const hostsOf = ({ endpoint }: Target, declared: string | null) => {
  if (declared !== "europe" && declared !== "us") return [endpoint.region]
  return endpoint.kind === "standard" || endpoint.region === declared ? [declared] : []
}

const isZdr = ({ endpoint: { kind, zdr } }: Target, declared: boolean | null) =>
  declared !== false && (zdr || (declared === true && ["standard", "pinned", "cross_region"].includes(kind)))

const misfits = (
  { request: { host, requires_zdr } }: RoutingCase,
  target: Target,
  of: [string | null, boolean | null]
) =>
  namesOf({
    region: host !== "global" && !hostsOf(target, of[0]).includes(host),
    zdr: requires_zdr && !isZdr(target, of[1])
  })

const isForCaller = ({ request }: RoutingCase, { credential }: Row) =>
  isIn(credential.allowed_api_key_hashes, request.api_key_hash) && isIn(credential.allowed_user_ids, request.user_id)

const reasonsOf = (routingCase: RoutingCase, target: Target, { cannotSign, credential, seal, availability }: Row) => [
  ...misfits(routingCase, target, [credential.declared_region, credential.declared_zdr]),
  ...namesOf({
    no_token: cannotSign === true,
    disabled: credential.disabled,
    api_key_not_allowed: !isIn(credential.allowed_api_key_hashes, routingCase.request.api_key_hash),
    user_not_allowed: !isIn(credential.allowed_user_ids, routingCase.request.user_id),
    model_not_allowed: !isIn(credential.allowed_models, routingCase.request.model),
    seal: !["verified", "unverified"].includes(seal),
    parked: availability._tag === "Parked"
  })
]

const prohibitionsOf = (routingCase: RoutingCase, row: Row) => {
  const { allowed_models, disabled, id, is_byok_only, is_required } = row.credential
  const counts = !disabled && isForCaller(routingCase, row)
  return namesOf({
    [`is_required ${id}`]: counts && is_required,
    [`is_byok_only ${id}`]: counts && is_byok_only && isIn(allowed_models, routingCase.request.model),
    [`seal ${id}`]: !["verified", "unverified"].includes(row.seal)
  })
}

type Rank = ReadonlyArray<number | string>

const compare = (a: Rank, b: Rank): number => {
  const index = a.findIndex((part, at) => part !== b[at])
  return index < 0 ? 0 : (a[index] ?? 0) < (b[index] ?? 0) ? -1 : 1
}

/** The plan by the tables of the documentation: reasons by quantifiers, and one sort of everything that is offered. */
export const planByTheBook = (routingCase: RoutingCase): PlanInWords => {
  const { rows, request } = routingCase
  const judged = request.targets.flatMap((target, turn) => {
    const { provider } = target
    const rankOf = (phase: number, ...rest: Rank): Rank =>
      request.strategy === "byok_first" ? [phase, turn, ...rest] : [turn, phase, ...rest]
    const pool = rows.filter(({ credential }) => credential.provider === provider)
    const own = pool.map((row) => {
      const { created_at, declared_region, id, is_fallback, sort_order } = row.credential
      const section = is_fallback ? "fallback" : "prioritized"
      const region = declared_region === "global" ? null : declared_region
      const on_trial = row.availability._tag === "OnTrial"
      return {
        id,
        section,
        row,
        reasons: reasonsOf(routingCase, target, row),
        rank: rankOf(is_fallback ? 2 : 0, sort_order, created_at.epochMilliseconds, id),
        words: [provider, section, id, `v${row.key_version}`, `row ${row.row}`, region, on_trial].join(" ")
      }
    })
    const removed = [...(target.endpoint.shared ? [] : ["none_there"]), ...misfits(routingCase, target, [null, null])]
    const reasons = [...removed, ...pool.flatMap((row) => prohibitionsOf(routingCase, row))]
    return [
      ...own.toSorted((a, b) => compare(a.rank, b.rank)),
      { id: provider, section: "", row: undefined, reasons, rank: rankOf(1), words: `${provider} shared` }
    ]
  })
  const offered = judged.filter(({ reasons }) => reasons.length === 0).sort((a, b) => compare(a.rank, b.rank))
  const positionOf = (one: (typeof judged)[number]) => (offered.includes(one) ? offered.indexOf(one) : null)
  const ends = judged
    .filter(({ reasons }) => reasons.join() === "parked")
    .flatMap(({ row }) => (row?.availability._tag === "Parked" ? [row.availability.until ?? Infinity] : []))
  const first = Math.min(...ends)
  const wordsOf = (one: (typeof judged)[number]) => verdictInWords(positionOf(one), one.reasons)
  return {
    steps: offered.map(({ words }) => words),
    verdicts: judged.flatMap((one) => (one.row ? [`${one.id} ${one.section} ${wordsOf(one)}`] : [])),
    shared: Object.fromEntries(judged.flatMap((one) => (one.row ? [] : [[one.id, wordsOf(one)]]))),
    retry_at: offered.length === 0 && first < Infinity ? first : null
  }
}
