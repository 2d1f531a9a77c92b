import { Arbitrary, DateTime } from "effect"
import type { Credential } from "../../../src/domain/Credential.ts"
import { AccountId, ApiKeyHash, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import type { Provider } from "../../../src/domain/Provider.ts"
import { EndpointKind, type RoutingRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import type { Availability } from "../../../src/domain/routing/Health.ts"
import type { Plan, Step } from "../../../src/domain/routing/Plan.ts"
import type * as Planning from "../../../src/domain/routing/planFor.ts"
import type * as Pasts from "../../../src/domain/routing/Past.ts"
import type * as Pooling from "../../../src/domain/routing/Pool.ts"
import { plainCredential } from "../../support/database/plainCredential.ts"
import { integer } from "../../support/memory/arbitraries.ts"

export type Target = RoutingRequest["targets"][number]

type Unlisted = Parameters<typeof Pooling.poolOf>[0][number]

/** A credential of a pool with its availability. */
export interface Row extends Unlisted {
  readonly availability: Availability
}

/** Everything that a plan depends on. Laws use `pick` to choose. */
export interface RoutingCase {
  readonly request: RoutingRequest
  readonly rows: ReadonlyArray<Row>
  readonly pick: number
}

/** Plans a case by the code or a variant of it. `walk` finds the steps one by one, each in a plan of its own. */
export interface Planner {
  (routingCase: RoutingCase): Plan
  readonly walk: (routingCase: RoutingCase) => Plan["steps"]
}

const partsOf = ({ request, rows }: RoutingCase, { poolOf }: Pick<typeof Pooling, "poolOf">) => {
  const availabilities = new Map(rows.map(({ credential, availability }) => [credential.id, availability]))
  return {
    request,
    poolOf: (provider: Provider) => poolOf(rows.filter(({ credential }) => credential.provider === provider)),
    availabilityOf: ({ credential }: Pooling.PooledCredential) =>
      availabilities.get(credential.id) ?? ({ _tag: "Free" } as const)
  }
}

export const plannerOf = (
  code: Pick<typeof Planning, "planFor" | "decisionsOn"> &
    Pick<typeof Pooling, "poolOf"> &
    Pick<typeof Pasts, "remainingAfter">
): Planner =>
  Object.assign((routingCase: RoutingCase) => code.planFor(partsOf(routingCase, code)), {
    walk: (routingCase: RoutingCase) => {
      const inputs = partsOf(routingCase, code)
      const steps: Array<Step> = []
      const past: Array<Pasts.Tried> = []
      for (;;) {
        const isRemaining = code.remainingAfter(past)
        const step = Array.from(code.decisionsOn(inputs)).find(
          ({ step }) => step !== undefined && isRemaining(step)
        )?.step
        if (step === undefined || past.length > routingCase.rows.length + routingCase.request.targets.length)
          return steps
        steps.push(step)
        const credential_id = step._tag === "Own" ? step.credential_id : null
        past.push({ provider: step.provider, credential_id, result: "Rejected" })
      }
    }
  })

const workspace_id = WorkspaceId.make("019ad5a0-0000-7000-8000-000000000000")
const providers: ReadonlyArray<Provider> = ["openai", "azure", "anthropic/2"]
const models = ["a/one", "a/two", "b/three"]
const users = ["ann", "bob"]
const hashes = ["a", "b"].map((digit) => ApiKeyHash.make(digit.repeat(64)))
const fill = <A>(length: number, of: (index: number) => A) => Array.from({ length }, (_, index) => of(index))
const otherHashes = fill(9, (index) => ApiKeyHash.make(String(index).repeat(64)))
const others = fill(9, (index) => `other ${index}`)

/** Splits a number into choices. Zero is the first of each, so smaller numbers are plainer cases. */
const choices = (number: number) => {
  let rest = number
  return <A>(...from: ReadonlyArray<A>): A => {
    const chosen = from[rest % from.length]
    rest = Math.floor(rest / from.length)
    return chosen as A
  }
}

const listsOf = <A>(members: ReadonlyArray<A>, strangers: ReadonlyArray<A>) =>
  [null, null, members.slice(0, 1), members, [], [...strangers, ...members.slice(0, 1)], strangers] as const

/** Flags that go together (D31). */
const flags = [
  {},
  {},
  { is_fallback: true },
  { is_required: true },
  { is_byok_only: true },
  { is_required: true, is_byok_only: true }
]

const parked = (cause: "rate_limited" | "rejected", until: number) => ({ _tag: "Parked", cause, until }) as const

/** A credential without restrictions, which no rule excludes. */
export const plainRow = (provider: Provider, index: number): Row => ({
  credential: {
    ...plainCredential(workspace_id, `019ad5a0-0000-7000-8000-0000000000${providers.indexOf(provider) + 1}${index}`),
    provider,
    created_at: DateTime.makeUnsafe(0),
    sort_order: 0
  },
  key_version: 1,
  leaked: false,
  row: "1",
  seal: "verified",
  stored: new Map(),
  availability: { _tag: "Free" }
})

export const changed = (row: Row, changes: Partial<Credential>): Row => ({
  ...row,
  credential: { ...row.credential, ...changes }
})

const rowOf = (provider: Provider, index: number, [policy, state]: readonly [number, number]): Row => {
  const some = choices(policy)
  const other = choices(state)
  const row = changed(plainRow(provider, index), {
    ...some(...flags),
    allowed_models: some(...listsOf(models.slice(0, 2), others)),
    allowed_user_ids: some(...listsOf(users, others)),
    allowed_api_key_hashes: some(...listsOf(hashes, otherHashes)),
    declared_region: some(null, "europe", "global", "us"),
    declared_zdr: some(null, true, false),
    disabled: some(false, false, false, false, true),
    sort_order: some(0, 1, 2),
    created_at: DateTime.makeUnsafe(some(0, 1))
  })
  return {
    ...row,
    seal: other("verified", "verified", "verified", "unsupported", "verified", "unverified", "altered", "unknown_key"),
    availability: other<Availability>(
      { _tag: "Free" },
      { _tag: "Free" },
      { _tag: "OnTrial", until: 1 },
      parked("rejected", 1_000),
      parked("rate_limited", 2_000),
      { _tag: "Parked", cause: "leaked", until: null }
    ),
    key_version: other(1, 2),
    row: other("1", "2"),
    cannotSign: other(false, false, false, true)
  }
}

const targetOf = (provider: Provider, number: number): Target => {
  const some = choices(number)
  return {
    provider,
    endpoint: {
      shared: some(true, true, true, false),
      kind: some("standard", ...EndpointKind.literals),
      region: some(null, "europe", "us", "global"),
      zdr: some(false, true)
    }
  }
}

const requestOf = (number: number, targets: ReadonlyArray<Target>): RoutingRequest => {
  const some = choices(number)
  return {
    account_id: AccountId.make(workspace_id),
    workspace_id,
    model: some(...models),
    api_key_hash: some(...hashes, null),
    user_id: some(...users, null),
    host: some("global", "europe", "us"),
    requires_zdr: some(false, true),
    targets,
    strategy: some("byok_first", "provider_first")
  }
}

/** A request of a caller without restrictions, to one provider. */
const plainRequest = requestOf(0, [targetOf("openai", 0)])

/** Members of a request, its endpoint or every row that differ from the plain case; their names do not collide. */
export type Around = Partial<RoutingRequest & Target["endpoint"] & Pick<Row, "availability" | "cannotSign" | "seal">>

/** A plain request to one provider, whose credentials differ from a plain one in this. */
export const plainCase = (credentials: ReadonlyArray<Partial<Credential>>, around: Around = {}): RoutingCase => ({
  request: {
    ...plainRequest,
    ...around,
    targets: plainRequest.targets.map(({ endpoint, provider }) => ({ provider, endpoint: { ...endpoint, ...around } }))
  },
  rows: credentials.map((changes, index) => ({ ...changed(plainRow("openai", index), changes), ...around })),
  pick: 0
})

const number = integer(0, 2 ** 31 - 1)
const oneRow = Arbitrary.all([number, number])

const poolOf = (provider: Provider) =>
  Arbitrary.map(
    Arbitrary.all({ target: number, pool: Arbitrary.array(oneRow, { maxLength: 4 }), reversed: integer(0, 1) }),
    ({ pool, reversed, target }) => {
      const rows = pool.map((numbers, index) => rowOf(provider, index, numbers))
      return { target: targetOf(provider, target), rows: reversed === 1 ? rows.reverse() : rows }
    }
  )

/** Requests to three providers with 0 to 4 credentials each, in which every rule has something to decide. */
export const anyRoutingCase: Arbitrary.Arbitrary<RoutingCase> = Arbitrary.map(
  Arbitrary.all({ request: number, pools: Arbitrary.all(providers.map(poolOf)), pick: number }),
  ({ pick, pools, request }) => ({
    request: requestOf(
      request,
      pools.map(({ target }) => target)
    ),
    rows: pools.flatMap(({ rows }) => rows),
    pick
  })
)
