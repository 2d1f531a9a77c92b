import type { Outcome } from "../../src/domain/routing/Outcome.ts"
import { Random } from "./Simulation.ts"

/** What goes wrong with one statement. `late`: it is answered as lost, and made some time later. */
export type Fault = "lost before" | "lost after" | "late" | "locked" | "busy"

const second = 1000
const minute = 60 * second
const hour = 60 * minute

const outcomes: ReadonlyArray<Outcome> = [
  { _tag: "RateLimited", retry_after: null },
  { _tag: "RateLimited", retry_after: 30 * second },
  { _tag: "RateLimited", retry_after: 3 * hour },
  { _tag: "RateLimited", retry_after: Number.NaN },
  { _tag: "Rejected" },
  { _tag: "Rejected" },
  { _tag: "Rejected" },
  { _tag: "Forbidden" },
  { _tag: "QuotaExhausted" },
  { _tag: "Succeeded" },
  { _tag: "Succeeded" },
  { _tag: "Succeeded" },
  { _tag: "UpstreamFailed" },
  { _tag: "UpstreamFailed" },
  { _tag: "RequestRefused" },
  { _tag: "Abandoned" }
]
const failed: Outcome = { _tag: "UpstreamFailed" }
const faults: ReadonlyArray<Fault> = [
  "lost before",
  "lost before",
  "lost after",
  "lost after",
  "late",
  "locked",
  "busy"
]
const skews = [0, 0, 7, -400 * hour, 9000 * hour]
const waits = [0, 0, 0, 0, 0, 0, 1, 20, 400, second, 6 * second, 61 * second]
const longWaits = [
  999,
  59_999,
  minute,
  10 * minute - 1,
  10 * minute,
  13 * minute,
  20 * minute,
  59 * minute,
  61 * minute,
  67 * minute,
  130 * minute,
  5 * hour
]
const freshnesses = [0, 0, 0, 200, 5 * second, minute, 10 * minute]

/** A deed: how often it comes, and its members. Numbers pick among what is there then. */
const drawn = <A extends object>(weight: number, draw: (random: Random) => A) => ({ weight, draw })

const pick = (random: Random) => ({ pick: random.below(8) })
const tenant = (random: Random) => (random.once(4) ? 1 : 0)
const pool = (random: Random) => ({ tenant: tenant(random), provider: random.once(3) ? 1 : 0 })
const handed = (random: Random) => ({
  ...{ attempt: random.pick([0, 0, 0, 1, 2, 3]), outcome: random.once(3) ? failed : random.pick(outcomes) }
})
/** A request of a tenant, on behalf of one of its API keys or of nobody. */
const request = (random: Random) => ({
  ...{ tenant: tenant(random), model: random.once(3) ? 1 : 0, freshness: random.pick(freshnesses) },
  ...{ apiKey: random.pick([null, null, 0, 1]), first: random.below(2) }
})

const deeds = {
  create: drawn(14, (random) => ({
    ...pool(random),
    ...{ idem: random.once(2) ? random.below(3) : null, body: random.below(8) }
  })),
  update: drawn(14, (random) => ({ pick: random.once(2) ? 0 : random.below(8), change: random.below(14) })),
  delete: drawn(4, pick),
  get: drawn(4, pick),
  /** Somebody of another account asks for a credential, or for what it is made of. */
  pry: drawn(2, (random) => ({ ...pick(random), how: random.below(5) })),
  order: drawn(4, (random) => ({ ...pool(random), ...pick(random) })),
  plan: drawn(20, request),
  attempt: drawn(22, (random) => ({
    ...{ ...request(random), step: random.once(3) ? 1 : 0, outcome: random.pick(outcomes) },
    takes: random.pick([0, 0, 0, 3, 31 * second])
  })),
  /** A gateway asks for the first attempt of a request. */
  ask: drawn(12, request),
  /** A gateway reports an attempt and asks for the next one, of any instance; again if it has done so before. */
  "go on": drawn(30, (random) => ({ ...handed(random), twice: random.once(5), foreign: random.once(20) })),
  /** A gateway reports an attempt, and asks for no other. */
  settle: drawn(10, handed),
  "refuse models": drawn(0.05, (random) => ({ tenant: tenant(random) })),
  leak: drawn(1, (random) => ({ ...pick(random), other: random.below(8) })),
  alter: drawn(1, pick),
  rewrap: drawn(2, pick),
  /** Somebody asks for a link, by which its owner connects, replaces or manages keys; or the link is revoked. */
  link: drawn(2, (random) => ({ ...pool(random), ...pick(random), purpose: random.below(3) })),
  "use link": drawn(5, (random) => ({
    ...{ link: random.below(3), how: random.below(4), change: random.below(14) },
    ...{ ...pick(random), body: random.below(8), meanwhile: random.pick([null, null, "again", "revoke"] as const) }
  })),
  "revoke link": drawn(1.5, (random) => ({ link: random.below(3) })),
  revoke: drawn(2, (random) => ({ tenant: tenant(random), apiKey: random.below(2) })),
  "delete workspace": drawn(0.5, (random) => ({ tenant: random.once(3) ? 0 : 1 })),
  erase: drawn(0.3, (random) => ({ tenant: random.once(3) ? 0 : 1 })),
  restart: drawn(2, (random) => ({ gently: random.once(2) })),
  "other keyring": drawn(2, (random) => ({ millis: random.pick([300, 3000, 40_000]) })),
  "lock row": drawn(2, (random) => ({ ...pick(random), millis: random.pick([3000, 30_000, 120_000]) })),
  disconnect: drawn(1, (random) => ({ millis: random.pick([50, 1500]) }))
}

type Deeds = typeof deeds
export type DeedOf<Name extends keyof Deeds> = { readonly do: Name } & Readonly<ReturnType<Deeds[Name]["draw"]>>
/** What somebody does. */
export type Deed = { [Name in keyof Deeds]: DeedOf<Name> }[keyof Deeds]

const names = Object.keys(deeds) as ReadonlyArray<keyof Deeds>
const total = names.reduce((sum, name) => sum + deeds[name].weight, 0)

/** What a gateway does, some of it often. */
const ofGateways = [
  ...(["ask", "ask", "ask", "go on", "go on", "go on", "go on", "go on", "go on"] as const),
  ...(["settle", "settle", "revoke"] as const)
]

const anyDeed = (random: Random, isGateway: boolean): Deed => {
  let at = (random.next() / 2 ** 32) * total
  const likely = names.find((one) => (at -= deeds[one].weight) < 0) ?? "plan"
  const name = isGateway && !random.once(4) ? random.pick(ofGateways) : likely
  return { do: name, ...deeds[name].draw(random) } as Deed
}

/** A deed on an instance, and what comes before it: time, and what was begun if it waits for that. */
export interface Step {
  readonly deed: Deed
  readonly instance: number
  readonly wait: number
  readonly joins: boolean
  /** Whether whoever asks leaves before the answer. */
  readonly leaves: boolean
  /** What happens to its statements, by their number. */
  readonly faults: ReadonlyArray<readonly [n: number, fault: Fault]>
}

export interface History {
  /** Of the tasks and the delays. */
  readonly seed: number
  readonly instances: number
  /** How far the clock of each instance is off, in milliseconds. */
  readonly skews: ReadonlyArray<number>
  /** How often what the background stores meets a fault: once in so many times, or never. */
  readonly background: number
  readonly steps: ReadonlyArray<Step>
}

/** The history of a seed. Half of them meet no fault at a statement, so that whatever fails then is ours. */
export const historyOf = (seed: number): History => {
  const random = new Random(seed)
  const instances = 1 + random.below(3)
  const isCalm = random.once(2)
  const length = 4 + random.below(random.once(8) ? 40 : 20)
  const isCrowded = random.once(3)
  const isGateway = random.once(4)
  /** Whether the first keys sign tokens. */
  const isSigning = random.once(4)
  const joined = isCrowded ? 12 : random.pick([2, 3, 8])
  const steps = Array.from({ length }, (_, n): Step => {
    const isLong = n > 3 && random.once(isCrowded ? 25 : 12)
    const wait = isLong ? random.pick(longWaits) : isCrowded && !random.once(8) ? 0 : random.pick(waits)
    return {
      deed:
        n < 3
          ? {
              do: "create",
              tenant: 0,
              provider: isSigning || (n === 2 && !isGateway) ? 1 : 0,
              idem: null,
              body: random.below(3)
            }
          : anyDeed(random, isGateway),
      instance: random.below(instances),
      wait: n < 3 ? 0 : wait,
      joins: n === 3 || random.once(joined),
      leaves: random.once(25),
      faults: isCalm || !random.once(6) ? [] : [[random.below(4), random.pick(faults)]]
    }
  })
  return {
    seed,
    instances,
    skews: Array.from({ length: instances }, () => random.pick(skews)),
    background: isCalm ? 0 : random.pick([0, 3, 10]),
    steps
  }
}
