import { assert } from "@effect/vitest"
import { Arbitrary, Effect, Exit, Fiber, Schema } from "effect"
import { CurrentDeadline } from "../../src/runtime/Deadline.ts"
import type { Reservation, makeMemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { integer } from "../support/memory/arbitraries.ts"

const total = 100
const ofTenants = 75

/** One step of a run. `which` selects an existing reservation. */
const Step = Schema.Struct({
  act: Schema.Literals(["admit", "admit", "admit", "end", "end", "grow", "shrink", "spare", "touch", "leave"]),
  account: Schema.Literals(["a", "b", "c", "d"]),
  use: Schema.Literals(["body", "page", "pool", "route", "gateway"]),
  /** Whether the reservation can be revoked, and whether it is then released at once or later. */
  revocable: Schema.Literals(["no", "at once", "later"]),
  isLate: Schema.Boolean,
  /** Few sizes: equal shares and sums that fit exactly are frequent. */
  bytes: Schema.Literals([1, 5, 10, 10, 20, 25, 30, 50, 60]),
  which: Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 1_000_000 }))
})
type Step = typeof Step.Type
export const anySteps = Arbitrary.flatMap(integer(1, 60), (length) =>
  Arbitrary.array(Arbitrary.schema(Step), { minLength: length, maxLength: length })
)

/** The interface of the budget and of its reference. */
interface Subject {
  readonly admit: (id: number, step: Step) => void
  readonly end: (id: number) => void
  readonly grow: (id: number, bytes: number) => void
  readonly shrink: (id: number, bytes: number) => void
  readonly spare: (id: number) => void
  readonly touch: (id: number) => void
  readonly leave: (id: number, heir: number, bytes: number) => void
  /** The bytes of each reservation, and all events in order. */
  readonly held: () => ReadonlyMap<number, number>
  readonly events: Array<string>
}

export type Code = typeof makeMemoryBudget

const makeSubject = (code: Code): Subject & { readonly counted: () => number } => {
  const budget = code(total)
  const fibers = new Map<number, Fiber.Fiber<unknown, unknown>>()
  const reservations = new Map<number, Reservation>()
  const held = new Map<number, number>()
  const spared = new Set<number>()
  const growing = new Set<number>()
  const events: Array<string> = []
  const release = (id: number) => {
    held.delete(id)
    reservations.get(id)?.release()
    reservations.get(id)?.release()
    reservations.delete(id)
  }
  return {
    admit: (id, { account, bytes, isLate, revocable, use }) => {
      const evict = () => {
        events.push(`${id} is let go`)
        if (revocable === "at once") release(id)
      }
      const deadline = { until: performance.now() + 60_000 }
      const admitted = budget.admit(account, use, bytes, revocable === "no" ? undefined : evict).pipe(
        Effect.map((reservation) => {
          events.push(`${id} is admitted`)
          reservations.set(id, reservation)
          held.set(id, bytes)
        }),
        Effect.provideService(CurrentDeadline, deadline)
      )
      fibers.set(id, Effect.runFork(admitted))
      if (isLate) deadline.until = 0
    },
    end: (id) => {
      fibers.get(id)?.interruptUnsafe()
      release(id)
    },
    grow: (id, bytes) => {
      const grown = () => {
        growing.delete(id)
        events.push(`${id} has grown`)
        held.set(id, (held.get(id) ?? 0) + bytes)
      }
      // Only a reservation that is not evictable may grow, and once at a time.
      if (spared.has(id) || growing.has(id)) return
      growing.add(id)
      if (reservations.get(id)?.grow(bytes, grown) === true) grown()
    },
    shrink: (id, bytes) => {
      const reservation = reservations.get(id)
      if (reservation === undefined) return
      growing.delete(id)
      held.set(id, Math.min(bytes, held.get(id) ?? 0))
      reservation.shrink(bytes)
    },
    spare: (id) => {
      const evict = () => {
        events.push(`${id} is spared no more`)
        release(id)
      }
      if (growing.has(id)) return
      spared.add(id)
      reservations.get(id)?.makeEvictable(evict)
    },
    touch: (id) => reservations.get(id)?.touch(),
    leave: (id, heir, bytes) => {
      const [one, other] = [reservations.get(id), reservations.get(heir)]
      if (one === undefined || other === undefined || spared.has(id) || growing.has(id)) return
      held.set(heir, (held.get(heir) ?? 0) + Math.min(bytes, held.get(id) ?? 0))
      held.delete(id)
      reservations.delete(id)
      one.transfer(other, bytes)
    },
    held: () => held,
    events,
    counted: () => Object.values(budget.held).reduce((sum, bytes) => sum + bytes, 0)
  }
}

interface Expected extends Pick<Step, "account" | "use" | "revocable"> {
  readonly id: number
  bytes: number
  isLeaving: boolean
  isSpare: boolean
}

/** A request for a new reservation, or for more bytes of an existing one. */
interface Ask extends Pick<Step, "account" | "isLate"> {
  readonly bytes: number
  readonly held: Expected
  readonly most: number
}

/** A simple, slow reference. */
const makeReference = (): Subject & { readonly spares: () => ReadonlyArray<number> } => {
  /** In order of admission; evictable ones in order of their last use. */
  let held: Array<Expected> = []
  let lines: Array<{ readonly account: string; asks: Array<Ask> }> = []
  /** Accounts with bytes, in the order in which they first reserved some. */
  let accounts: Array<string> = []
  const events: Array<string> = []
  const sum = (some: ReadonlyArray<Expected>) => some.reduce((bytes, one) => bytes + one.bytes, 0)
  const heldBy = (account: string) => sum(held.filter((one) => one.account === account && !one.isSpare))
  const fits = ({ bytes, most }: Ask) => sum(held) + bytes <= most
  const tidy = () => {
    accounts = accounts.filter((account) => heldBy(account) > 0)
    for (const { account } of held) if (!accounts.includes(account) && heldBy(account) > 0) accounts.push(account)
  }
  const stopWaiting = (id: number) => {
    lines = lines
      .map(({ account, asks }) => ({ account, asks: asks.filter((ask) => ask.held.id !== id) }))
      .filter(({ asks }) => asks.length > 0)
  }
  const remove = (id: number) => {
    held = held.filter((one) => one.id !== id)
    stopWaiting(id)
    tidy()
  }
  const letSparesGo = (isEnough: () => boolean) => {
    for (const one of held.filter(({ isSpare }) => isSpare)) {
      if (isEnough()) return
      events.push(`${one.id} is spared no more`)
      remove(one.id)
    }
  }
  const makeRoom = (ask: Ask) => {
    letSparesGo(() => fits(ask))
    const shares = new Map(accounts.map((account) => [account, heldBy(account)]))
    const going: Array<Expected> = []
    const free = () => ask.most - sum(held) + sum([...held.filter(({ isLeaving }) => isLeaving), ...going])
    while (free() < ask.bytes) {
      const [largest = "", share = 0] = [...shares].sort(([, one], [, other]) => other - one)[0] ?? []
      const oldest = held.find(
        (one) =>
          one.account === largest &&
          !one.isSpare &&
          one.revocable !== "no" &&
          !going.includes(one) &&
          // Skips reservations that were revoked already or cannot be revoked.
          (!one.isLeaving || share - one.bytes < heldBy(ask.account) + ask.bytes)
      )
      if (oldest === undefined || share - oldest.bytes < heldBy(ask.account) + ask.bytes) return
      going.push(oldest)
      shares.set(largest, share - oldest.bytes)
    }
    for (const one of going) {
      one.isLeaving = true
      events.push(`${one.id} is let go`)
      if (one.revocable === "at once") remove(one.id)
    }
  }
  const give = ({ bytes, held: one }: Ask) => {
    const isNew = one.bytes === 0
    one.bytes += bytes
    if (isNew) held.push(one)
    tidy()
    events.push(isNew ? `${one.id} is admitted` : `${one.id} has grown`)
  }
  const next = () => {
    let least = Number.POSITIVE_INFINITY
    for (const line of lines.slice()) {
      const [ask] = line.asks
      if (ask === undefined) continue
      const wanted = heldBy(line.account) + ask.bytes
      if (wanted > least) continue
      if (!fits(ask)) makeRoom(ask)
      if (fits(ask)) return ask
      least = wanted
    }
    return undefined
  }
  /** Serves waiting requests. A request served on arrival is not late. */
  const serve = (arriving?: Ask) => {
    for (let ask = next(); ask !== undefined; ask = next()) {
      const found = ask
      const line = lines.find(({ account }) => account === found.account)
      lines = lines.filter((one) => one !== line)
      const rest = line?.asks.filter((one) => one !== found) ?? []
      if (rest.length > 0) lines.push({ account: found.account, asks: rest })
      if (!found.isLate || found === arriving) give(found)
    }
  }
  const request = (ask: Ask) => {
    if (lines.length === 0 && fits(ask)) return give(ask)
    const line = lines.find(({ account }) => account === ask.account)
    if (line === undefined) lines.push({ account: ask.account, asks: [ask] })
    else line.asks.push(ask)
    serve(ask)
  }
  const isModest = () => sum(held) <= ofTenants || held.filter(({ isSpare }) => isSpare).length === 1
  const isWaiting = (id: number) => lines.some(({ asks }) => asks.some(({ held }) => held.id === id))
  const mostFor = ({ isSpare, use }: Expected) => (!isSpare && (use === "body" || use === "page") ? ofTenants : total)
  return {
    admit: (id, { account, bytes, isLate, revocable, use }) => {
      const one: Expected = { id, account, use, revocable, bytes: 0, isLeaving: false, isSpare: false }
      request({ account, bytes, isLate, held: one, most: mostFor(one) })
    },
    end: (id) => {
      if (!isWaiting(id) && !held.some((one) => one.id === id)) return
      remove(id)
      serve()
    },
    grow: (id, bytes) => {
      const one = held.find((one) => one.id === id)
      if (one === undefined || one.isSpare || isWaiting(id)) return
      request({ account: one.account, bytes, isLate: false, held: one, most: mostFor(one) })
    },
    shrink: (id, bytes) => {
      const one = held.find((one) => one.id === id)
      if (one === undefined || (one.bytes <= bytes && !isWaiting(id))) return
      one.bytes = Math.min(bytes, one.bytes)
      stopWaiting(id)
      serve()
    },
    spare: (id) => {
      const one = held.find((one) => one.id === id)
      if (one === undefined || isWaiting(id)) return
      Object.assign(one, { isSpare: true, isLeaving: false })
      held = [...held.filter((other) => other !== one), one]
      tidy()
      letSparesGo(isModest)
      serve()
    },
    leave: (id, heir, bytes) => {
      const [one, other] = [id, heir].map((id) => held.find((one) => one.id === id))
      if (one === undefined || other === undefined || one.isSpare || isWaiting(id)) return
      other.bytes += Math.min(bytes, one.bytes)
      remove(id)
      serve()
      letSparesGo(isModest)
    },
    spares: () => held.flatMap(({ id, isSpare }) => (isSpare ? [id] : [])),
    touch: (id) => {
      const one = held.find((one) => one.id === id && one.isSpare)
      if (one !== undefined) held = [...held.filter((other) => other !== one), one]
    },
    held: () => new Map(held.map(({ bytes, id }) => [id, bytes])),
    events
  }
}

/** Runs the steps on the budget and on the reference, and compares what is held and what happened after each. */
export const runSteps = (code: Code, steps: ReadonlyArray<Step>) => {
  const budget = makeSubject(code)
  const reference = makeReference()
  const subjects: ReadonlyArray<Subject> = [budget, reference]
  /** The events of a step. The step's own admission comes last, because its fiber resumes after the others. */
  const eventsIn = ({ events }: Subject, own: string) => {
    const found = events.splice(0)
    return [...found.filter((event) => event !== own), ...found.filter((event) => event === own)].join(", ")
  }
  const agree = (act: string, own = "") => {
    assert.strictEqual(eventsIn(budget, own), eventsIn(reference, own), act)
    assert.deepStrictEqual(
      [...budget.held()].sort(([one], [other]) => one - other),
      [...reference.held()].sort(([one], [other]) => one - other),
      act
    )
    const sum = [...budget.held().values()].reduce((sum, bytes) => sum + bytes, 0)
    assert.strictEqual(budget.counted(), sum, act)
    assert.isAtMost(sum, total, act)
  }
  steps.forEach((one, id) => {
    const chosen = [...reference.held().keys()]
    const target = one.act === "end" ? one.which % (id + 1) : (chosen[one.which % Math.max(1, chosen.length)] ?? -1)
    const spares = reference.spares()
    const heir = spares[one.which % Math.max(1, spares.length)] ?? -1
    for (const subject of subjects) {
      if (one.act === "admit") subject.admit(id, one)
      else if (one.act === "end") subject.end(target)
      else if (one.act === "grow") subject.grow(target, one.bytes)
      else if (one.act === "shrink") subject.shrink(target, one.bytes)
      else if (one.act === "spare") subject.spare(target)
      else if (one.act === "leave") subject.leave(target, heir, one.bytes)
      else subject.touch(target)
    }
    agree(`step ${id}: ${one.act} ${target}`, `${id} is admitted`)
  })
  steps.forEach((_, id) => {
    for (const subject of subjects) subject.end(id)
    agree(`the end of ${id}`)
  })
  assert.strictEqual(budget.counted(), 0, "everything was given back")
}

/** Whether budget and reference differ in these steps. */
export const isToldApart = (code: Code, steps: ReadonlyArray<Step>) =>
  Exit.isFailure(Effect.runSyncExit(Effect.try({ try: () => runSteps(code, steps), catch: (error) => error })))
