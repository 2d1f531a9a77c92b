import { Clock, Context, Duration, Effect, Exit, Option, Result, Scope } from "effect"
import type { SqlClient } from "effect/sql"
import type { CredentialId } from "../../../src/domain/Identifiers.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import type { PoolOwner } from "../../../src/port/CredentialPools.ts"
import type { Credentials } from "../../../src/port/Credentials.ts"
import { LeakedKeys } from "../../../src/port/LeakedKeys.ts"
import { Parkings } from "../../../src/port/Parkings.ts"
import type { PlannedRequest } from "../../../src/service/routing/PlannedRequest.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { create, remove, update } from "../../support/service/asTenant.ts"
import { eventually } from "../../support/process/eventually.ts"
import { requestOf } from "../../support/service/planning.ts"

const second = 1000
const minute = 60 * second
const hour = 60 * minute

export const sides = [0, 1, 2] as const
const providers = ["azure", "openai"] as const

/** What happens to a credential, the order of a pool or an instance. */
type Kind =
  | ("create" | "delete" | "disable" | "enable" | "forbid" | "allow" | "key" | "require" | "edit" | "leak")
  | ("try" | "sweep" | "reorder" | "restart")

export interface Command {
  readonly kind: Kind
  readonly side: (typeof sides)[number]
  /** Picks the credential. */
  readonly pick: number
  /** What comes of a `try`; none if its lease stays open. */
  readonly outcome: "Rejected" | "Succeeded" | "Abandoned" | undefined
  /** In milliseconds, before it begins. */
  readonly pause: number
}

/** Commands that are carried out at a time, and for how long nothing happened before, in milliseconds. */
export interface Batch {
  /** The instance that plans nothing meanwhile, and leases what it has planned before afterwards. */
  readonly resting: Command["side"] | undefined
  readonly wait: number
  readonly commands: ReadonlyArray<Command>
}
export type Scene = ReadonlyArray<Batch>

/** What plans may say of a credential. Times are of the clock of the scene. */
interface State {
  readonly isThere: boolean
  readonly disabled: boolean
  readonly forbidden: boolean
  readonly required: boolean
  readonly altered: boolean
  readonly leaked: boolean
  readonly key_version: number
  readonly epoch: number
  readonly strikes: number
  readonly until: number
  readonly stored_at: number
}

/** A state of a credential: when the change to it began, and when it was acknowledged or seen by a plan. */
interface Entry {
  readonly state: State
  readonly began: number
  acknowledged: number
  /** An instance knows its own reports before they are stored. */
  readonly isReport: boolean
}

interface Member {
  readonly id: CredentialId
  readonly pool: number
  readonly sort_order: number
  readonly history: Array<Entry>
  /** A lease that is on trial. */
  held:
    | { readonly router: Instance; readonly at: number; readonly state: State; readonly scope: Scope.Closeable }
    | undefined
}

const healthy = { leaked: false, epoch: 0, strikes: 0, until: -Infinity, stored_at: -Infinity }
const initially: State = {
  ...healthy,
  isThere: true,
  disabled: false,
  forbidden: false,
  required: false,
  altered: false,
  key_version: 1
}
const stateOf = ({ history }: Member): State => history.at(-1)?.state ?? initially

/** Refusals are forgotten an hour after the cooldown. */
const strikesAt = ({ strikes, until }: State, now: number) => (now < until + hour ? strikes : 0)

const reported = (state: State, outcome: Command["outcome"], now: number): State => {
  const strikes = strikesAt(state, now)
  if (outcome === "Rejected") {
    const until = now + Math.min(minute * 2 ** strikes, hour)
    return { ...state, strikes: strikes + 1, until, stored_at: now }
  }
  return outcome === "Succeeded" && strikes > 0
    ? { ...state, ...healthy, epoch: state.epoch + 1, stored_at: now }
    : state
}

/** What a plan says of a credential in a state. */
const seenOf = (state: State, now: number): string => {
  if (!state.isThere) return "absent"
  const reasons = [
    ...(state.altered ? ["altered"] : []),
    ...(state.disabled ? ["disabled"] : []),
    ...(state.forbidden ? ["model_not_allowed"] : []),
    ...(state.leaked ? ["leaked"] : now < state.until ? ["rejected"] : [])
  ]
  return reasons.length === 0 ? `key ${state.key_version}` : reasons.join()
}

/** What was planned so late or so early that the end of a cooldown may lie on either side. */
const tolerance = 25 * second

const forbidsShared = ({ altered, disabled, isThere, required }: State) =>
  isThere && (altered || (required && !disabled))

/** The states that a reader may have seen who asked about a time from `from` to `until`. */
const between = (history: ReadonlyArray<Entry>, from: number, until: number): ReadonlyArray<Entry> => {
  const last = history.findLastIndex(({ acknowledged }) => acknowledged < from)
  return history.filter(({ began }, index) => index >= last && began <= until)
}

/** What a plan said of a credential. */
const saidOf = (plan: PlannedRequest, { id, pool }: Member): string => {
  const verdict = plan.providers[pool]?.credentials.find(({ credential_id }) => credential_id === id)
  if (verdict === undefined) return "absent"
  const reasons = verdict.exclusions.map((exclusion) =>
    exclusion.reason === "parked" ? exclusion.cause : exclusion.reason === "seal" ? exclusion.seal : exclusion.reason
  )
  return reasons.length > 0 ? reasons.join() : `key ${stepOf(plan, id)?.key_version}`
}

const stepOf = ({ steps }: PlannedRequest, id: CredentialId) =>
  steps.flatMap((step) => (step._tag === "Own" && step.credential_id === id ? [step] : []))[0]

/** The services of one instance. */
export type Instance = Context.Context<CredentialRepository | Credentials | LeakedKeys | Parkings | Router>

/** A write with a fault in it, instead of the service's. */
export type Faults = Partial<Record<Command["kind"], (pool: FaultyWrite) => Effect.Effect<unknown, unknown>>>

export interface FaultyWrite {
  readonly owner: PoolOwner
  readonly provider: string
  readonly ids: ReadonlyArray<CredentialId>
}

/** Real time, with what was skipped. */
const makeClock = Effect.map(Clock.Clock, (real) => {
  let skipped = 0
  const clock = Object.create(real, {
    monotonicTimeNanosUnsafe: { value: () => real.monotonicTimeNanosUnsafe() + BigInt(skipped) * 1_000_000n }
  }) as Clock.Clock
  return {
    clock,
    now: () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6,
    skip: (milliseconds: number) => void (skipped += milliseconds)
  }
})

/**
 * Plays a scene on three instances over one database, of which each plans and leases all the while, and compares what they
 * say with one list of credentials. Time that is skipped passes for the instances and for the database alike.
 */
export const play = Effect.fnUntraced(function* (
  start: (side: Command["side"]) => Effect.Effect<Instance, never, Scope.Scope>,
  sql: SqlClient.SqlClient,
  owner: PoolOwner,
  scene: Scene,
  faults: Faults = {}
) {
  const { clock, now, skip } = yield* makeClock
  const atClock = Effect.provideService(Clock.Clock, clock)
  const instances = yield* Effect.forEach(sides, (side) => atClock(start(side)))
  const instance = (side: Command["side"]) => instances[side] as Instance
  /** What was seen that must not be, and how much was seen at all. */
  const wrong: Array<string> = []
  const counts = { plans: 0, leased: 0, refused: 0, trials: 0, parked: 0, swept: 0 }
  const { account_id, workspace_id } = owner
  const request = requestOf(owner, { targets: providers.map((provider) => ({ provider })) })
  /** In the order in which they are tried. */
  let members: ReadonlyArray<Member> = []
  let keys = 0
  const newKey = () => `sk-fake-0123456789-${(keys += 1)}-0123456789`

  /** Makes a change, from one state of credentials to the next. */
  const change = (
    changed: ReadonlyArray<Member>,
    next: (state: State) => State,
    made: Effect.Effect<unknown, unknown>,
    isReport = false
  ) =>
    Effect.suspend(() => {
      const began = now()
      const entries = changed.map((member) => {
        const entry: Entry = { state: next(stateOf(member)), began, acknowledged: Infinity, isReport }
        member.history.push(entry)
        return entry
      })
      return Effect.map(made, () => {
        for (const entry of entries) entry.acknowledged = Math.min(entry.acknowledged, now())
      })
    })

  const checkPlan = (plan: PlannedRequest, from: number, asked: number, what: string) => {
    const answered = now()
    const possible = new Map(members.map((member) => [member, between(member.history, from, answered)]))
    for (const [member, entries] of possible) {
      const said = saidOf(plan, member)
      const matching = entries.filter(({ state }) =>
        [asked - tolerance, answered + tolerance].some((at) => seenOf(state, at) === said)
      )
      if (matching.length === 0) {
        const allowed = entries.map(({ state }) => seenOf(state, answered))
        wrong.push(`${what} said ${said}, not ${Array.from(new Set(allowed)).join(" or ")}`)
      }
      if (said === "rejected") counts.parked += 1
      const [first] = matching
      if (first !== undefined && !first.isReport && from === asked) {
        first.acknowledged = Math.min(first.acknowledged, answered)
      }
    }
    for (const [pool, provider] of providers.entries()) {
      const isShared = plan.steps.some((step) => step._tag === "Shared" && step.provider === provider)
      const own = Array.from(possible).filter(([member]) => member.pool === pool)
      const mayBe = isShared
        ? own.every(([, entries]) => entries.some(({ state }) => !forbidsShared(state)))
        : own.some(([, entries]) => entries.some(({ state }) => forbidsShared(state)))
      if (!mayBe) wrong.push(`${what} was ${isShared ? "" : "not "}shared`)
    }
  }

  const checkLeases = Effect.fnUntraced(function* (side: Command["side"], plan: PlannedRequest) {
    for (const step of plan.steps) {
      if (step._tag !== "Own") continue
      const began = now()
      const found = yield* Effect.result(Effect.scoped(Context.get(instance(side), Router).lease(plan, step)))
      if (Result.isFailure(found)) {
        counts.refused += 1
        continue
      }
      counts.leased += 1
      const member = members.find(({ id }) => id === step.credential_id)
      // It is being created.
      if (member === undefined) continue
      const seen = between(member.history, began - Math.max(second, plan.freshness), now()).flatMap(({ state }) =>
        [began - tolerance, now() + tolerance].map((at) => seenOf(state, at))
      )
      if (!seen.includes(`key ${step.key_version}`)) wrong.push(`a lease of key ${step.key_version} in ${seen.join()}`)
    }
  })

  const plan = Effect.fnUntraced(function* (side: Command["side"], freshness: number, what = "a plan") {
    const asked = now()
    const router = Context.get(instance(side), Router)
    const planned = yield* router.plan(request, freshness === 0 ? "now" : Duration.millis(freshness))
    counts.plans += 1
    checkPlan(planned, asked - freshness, asked, `${what} of ${freshness} on ${side}`)
    return planned
  })

  /** Leases a key, and while it is on trial once more, which must be refused. */
  const attempt = Effect.fnUntraced(function* (member: Member, { outcome, side }: Command) {
    const router = Context.get(instance(side), Router)
    const state = stateOf(member)
    if (strikesAt(state, now()) !== strikesAt(state, now() + tolerance)) return
    const planned = yield* router.plan(request)
    const step = stepOf(planned, member.id)
    const { held } = member
    if (step === undefined) return
    const scope = yield* Scope.make()
    const found = yield* Effect.result(Scope.provide(router.lease(planned, step), scope))
    const again = Effect.result(Effect.scoped(router.lease(planned, step)))
    const isTrial = strikesAt(state, now()) > 0 && now() > state.until
    if (isTrial) {
      counts.trials += 1
      if (Result.isSuccess(found) && Result.isSuccess(yield* again)) wrong.push(`two trials at once on ${side}`)
      const isSame = held?.router === instance(side) && held.state === state && now() < held.at + 29 * second
      if (isSame && Result.isSuccess(found)) wrong.push(`a trial on ${side} while another is out`)
    }
    if (held !== undefined) yield* Scope.close(held.scope, Exit.void)
    member.held = undefined
    if (outcome === undefined && Result.isSuccess(found) && isTrial) {
      member.held = { router: instance(side), at: now(), state, scope }
      return
    }
    if (Result.isSuccess(found) && outcome !== undefined) {
      const next = reported(state, outcome, now())
      const row = sql<{ readonly row: string; readonly epoch: number; readonly strikes: number }>`
        SELECT xmin::text AS row, epoch, strikes FROM credential_parkings
        WHERE account_id = ${account_id} AND credential_id = ${member.id} AND model = ''`
      const [before] = yield* row
      const stored = Effect.andThen(
        eventually(`${outcome} is stored`, row, ([after]) => after !== undefined && after.row !== before?.row),
        Effect.map(row, ([after]) => {
          const isExpected = after?.epoch === next.epoch && after.strikes === next.strikes
          if (!isExpected) wrong.push(`${outcome} on ${side} was stored as ${JSON.stringify(after)}`)
        })
      )
      const report = router.report(found.success, { _tag: outcome })
      yield* next === state ? report : change([member], () => next, Effect.andThen(report, stored), true)
    }
    yield* Scope.close(scope, Exit.void)
  })

  const carryOut = Effect.fnUntraced(function* (
    command: Command,
    [member, other]: ReadonlyArray<Member>,
    before: ReadonlyArray<Member>
  ): Effect.fn.Return<unknown, unknown, Scope.Scope> {
    const { kind, pick, side } = command
    yield* Effect.sleep(command.pause)
    const here = instance(side)
    const pool = (member?.pool ?? pick) % 2
    const provider = providers[pool] ?? "azure"
    const ids = before.filter((one) => one.pool === pool && stateOf(one).isThere).map(({ id }) => id)
    const fault = faults[kind]?.({
      owner,
      provider,
      ids: kind === "reorder" || member === undefined ? ids : [member.id]
    })
    if (kind === "restart") return (instances[side] = yield* start(side))
    if (kind === "reorder") {
      const order = { ids: ids.toReversed(), provider, workspace_id }
      const mismatch = yield* fault ?? Context.get(here, CredentialRepository).reorder(account_id, order)
      if (Option.isOption(mismatch) && Option.isSome(mismatch)) return mismatch
      const turned = before.filter((one) => one.pool === pool).toReversed()
      members = [...members.filter((one) => one.pool !== pool), ...turned, ...created(pool, before)]
      return undefined
    }
    if (kind === "create" || member === undefined) {
      const began = now()
      const { id, sort_order } = yield* Effect.provide(create(owner, { provider, key: newKey() }), here)
      const history = [
        { state: { ...initially, isThere: false }, began: 0, acknowledged: 0, isReport: false },
        { state: initially, began, acknowledged: now(), isReport: false }
      ]
      return (members = [...members, { id, pool, sort_order, history, held: undefined }])
    }
    const { id } = member
    const key = { ...owner, credential_id: id, key_version: stateOf(member).key_version }
    const state = stateOf(member)
    const changing = (changes: Partial<State>, made: Effect.Effect<unknown, unknown>) =>
      change([member], (before) => ({ ...before, ...changes }), made)
    const updated = (changes: Partial<State>, body: object) =>
      changing(changes, Effect.provide(update(owner, id, body), here))
    switch (kind) {
      case "disable":
      case "enable":
        return yield* updated({ disabled: kind === "disable" }, { disabled: kind === "disable" })
      case "forbid":
      case "allow":
        return yield* updated({ forbidden: kind === "forbid" }, { allowed_models: kind === "forbid" ? [] : null })
      case "require":
        return yield* updated({ required: !state.required }, { is_required: !state.required })
      case "key":
        return yield* updated({ ...healthy, key_version: key.key_version + 1 }, { key: newKey() })
      case "delete":
        return yield* changing({ isThere: false }, Effect.provide(remove(owner, id), here))
      case "edit": {
        const written = Effect.andThen(
          sql`UPDATE pools SET version = version + 1 WHERE account_id = ${account_id} AND provider = ${provider}`,
          sql`UPDATE credentials SET declared_zdr = false WHERE account_id = ${account_id} AND id = ${id}`
        )
        return yield* changing({ altered: true }, sql.withTransaction(written))
      }
      case "leak": {
        const leaked = other === undefined ? [member] : [member, other]
        const found = leaked.map((one) => ({ ...key, credential_id: one.id, key_version: stateOf(one).key_version }))
        const made = Context.get(here, LeakedKeys).conclude({ keys: found, searched: 2, park: true })
        return yield* change(leaked, (before) => ({ ...before, leaked: true }), fault ?? made)
      }
      case "try":
        return yield* attempt(member, command)
      case "sweep": {
        const age = now() - Math.max(state.stored_at, state.until)
        if (Math.abs(age - 4 * hour) < tolerance) return undefined
        const isSwept = age > 4 * hour && !state.leaked
        if (isSwept && Number.isFinite(age)) counts.swept += 1
        // Storing anything of a credential sweeps what is long over of it.
        const stored = { ...key, model: "a/other", epoch: 0, cause: null, strikes: 0, remaining: null }
        const made = Effect.suspend(() => Context.get(here, Parkings).store([stored]))
        return yield* changing(isSwept ? healthy : {}, fault ?? made)
      }
    }
  })

  const created = (pool: number, before: ReadonlyArray<Member>) =>
    members
      .filter((one) => one.pool === pool && !before.includes(one))
      .toSorted((one, other) => one.sort_order - other.sort_order)

  /** At most one command at a time changes a credential, or the order of a pool, so that the outcome is certain. */
  const choose = (commands: ReadonlyArray<Command>) => {
    const taken = new Set<unknown>()
    return commands.flatMap((command): ReadonlyArray<readonly [Command, ReadonlyArray<Member>]> => {
      const { kind, pick, side } = command
      if (kind === "create") return [[command, []]]
      const own = kind === "restart" ? `restart ${side}` : "reorder"
      if (kind === "restart" || kind === "reorder") return taken.has(own) || !taken.add(own) ? [] : [[command, []]]
      const free = members.filter((one) => {
        const { altered, isThere } = stateOf(one)
        return isThere && !taken.has(one) && (!altered || kind === "delete")
      })
      const member = free[pick % free.length]
      if (member === undefined) return []
      const other = kind === "leak" ? free.find((one) => one.pool !== member.pool) : undefined
      const changed = other === undefined ? [member] : [member, other]
      for (const one of changed) taken.add(one)
      return [[command, changed]]
    })
  }

  const plans = new Map<Command["side"], PlannedRequest>()
  const playBatch = Effect.fnUntraced(function* ({
    commands,
    resting,
    wait
  }: Batch): Effect.fn.Return<void, unknown, Scope.Scope> {
    skip(wait)
    yield* sql`
      UPDATE credential_parkings SET until = until - ${wait} * interval '1 millisecond',
        parked_at = parked_at - ${wait} * interval '1 millisecond' WHERE account_id = ${account_id}`
    const before = members
    const chosen = choose(commands)
    let isWriting = true
    const writing = Effect.forEach(
      chosen,
      ([command, changed]) =>
        Effect.flatMap(carryOut(command, changed, before), (mismatch) => {
          const mayDiffer = chosen.some(([{ kind }]) => kind === "create" || kind === "delete")
          if (command.kind === "reorder" && mismatch !== undefined && !mayDiffer) wrong.push("an order does not match")
          return Effect.void
        }),
      { concurrency: "unbounded", discard: true }
    )
    const planning = sides.filter((side) => side !== resting)
    const reading = Effect.forEach(
      planning,
      Effect.fnUntraced(function* (side) {
        const late = plans.get(side)
        if (late !== undefined) yield* checkLeases(side, late)
        for (let n = 0; n === 0 || isWriting; n += 1) {
          if (n > 4) yield* Effect.sleep(20)
          yield* checkLeases(side, yield* plan(side, (n % 2) * 200))
        }
      }),
      { concurrency: "unbounded", discard: true }
    )
    const written = Effect.tap(writing, () => Effect.sync(() => (isWriting = false)))
    yield* Effect.all([written, reading], { concurrency: "unbounded", discard: true })
    members = [0, 1].flatMap((pool) => [
      ...members.filter((one) => one.pool === pool && before.includes(one)),
      ...created(pool, before)
    ])
    for (const side of planning) {
      const settled = yield* plan(side, 0, "a settled plan")
      plans.set(side, settled)
      const tried = settled.steps.flatMap((step) => (step._tag === "Own" ? [step.credential_id] : []))
      const expected = members.filter(({ id }) => tried.includes(id)).map(({ id }) => id)
      if (tried.join() !== expected.join()) wrong.push(`${side} tries ${tried.join()}, not ${expected.join()}`)
    }
  })

  for (const batch of scene) yield* atClock(playBatch(batch))
  for (const { held } of members) if (held !== undefined) yield* Scope.close(held.scope, Exit.void)
  return { wrong, counts }
}, Effect.scoped)
