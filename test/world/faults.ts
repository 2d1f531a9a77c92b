import { readFileSync } from "node:fs"
import { join } from "node:path"
import type { Deed, History, Step } from "./History.ts"
import type { Edit } from "./planted.ts"

/** A fault that shows that a law of the world is not blind. */
interface Planted {
  readonly law: string
  readonly fault: string
  readonly edit: Edit
}

/** Reads `faults.txt`: laws, files, and the faults of each: lines that are taken out of the file, and those in their place. */
const readFaults = (): ReadonlyArray<Planted> => {
  let [law, file] = ["", ""]
  return readFileSync(join(import.meta.dirname, "faults.txt"), "utf8")
    .trim()
    .split(/\n+(?=[#@*] )/)
    .flatMap((block) => {
      const [head = "", ...lines] = block.split("\n")
      const name = head.slice(2)
      if (head.startsWith("#")) law = name
      else if (head.startsWith("@")) file = name
      const marked = (mark: string) =>
        lines.flatMap((line) => (line.startsWith(mark) ? [line.slice(1)] : [])).join("\n")
      return head.startsWith("*") ? [{ law, fault: name, edit: [file, marked("-"), marked("+")] }] : []
    })
}

export const faults = readFaults()

/**
 * A seed that shows each fault, where neither one of the first ones nor a history below does. One that shows it no longer
 * costs only time: `npm run world -- --planted` prints others.
 */
export const known: Readonly<Record<string, number>> = {
  "an update is acknowledged but not stored": 130,
  "an update ignores the revision": 130,
  "a create fails if another took its idempotency key meanwhile": 754,
  "deleting an unknown credential succeeds": 80,
  "a read shows a disabled credential as enabled": 691,
  "a create with an idempotency key leaves no record": 22,
  "two credentials get the same sort_order": 69,
  "a pool takes one member more than its limit": 1315,
  "a plan is made when its effect is created, not when it runs": 179,
  "a plan joins a read that began before the request": 2980,
  "a snapshot counts as fresh for twice as long": 51,
  "a deleted workspace still routes with fresh snapshots": 2111,
  "a cached token is used although its key does not open": 2190,
  "a row is visible to every account": 28,
  "a credential may name an API key of any account": 90,
  "the database deletes cooldowns that processes still remember": 450,
  "changes of locked rows are dropped": 22,
  "a link's key pair decrypts two keys": 3058,
  "a link that serves once serves again": 1008,
  "a used link does not tell what it has stored": 2918,
  "a link's end is told by its instance's clock": 28,
  "changes that meet a fault of the database's server are dropped": 1151,
  "an altered row counts as verified": 102,
  "changes that fail to be stored are dropped": 274,
  "changes waiting at shutdown are dropped": 2084,
  "an update that loses a race is not retried": 239,
  "an event names no link": 97,
  "Retry-After is not limited to an hour": 27,
  "the write of a closed link is stored": 2158,
  "a delete does not lower the member count": 9,
  "a delete does not lower the byte count": 9
}

const step = (deed: Deed, more: Partial<Step> = {}): Step => ({
  ...{ deed, instance: 0, wait: 0, joins: true, leaves: false, faults: [] },
  ...more
})
const history = (...steps: ReadonlyArray<Step>): History => ({
  ...{ seed: 1, instances: 1, skews: [0], background: 0, steps }
})
const create = (provider: number, more: Partial<Step> = {}) =>
  step({ do: "create", tenant: 0, provider, idem: null, body: 0 }, more)
const request = { tenant: 0, model: 0, freshness: 0, apiKey: null, first: 0 }
const ask = step({ do: "ask", ...request })
type Reported = "Succeeded" | "Rejected" | "UpstreamFailed"
const attempt = (freshness: number, outcome: Reported, takes = 0, more: Partial<Step> = {}) =>
  step({ do: "attempt", ...request, freshness, step: 0, outcome: { _tag: outcome }, takes }, more)
const goOn = (attempt: number, outcome: Reported, more: Partial<Step> = {}) =>
  step({ do: "go on", attempt, outcome: { _tag: outcome }, twice: false, foreign: false }, more)
const again = { outcome: { _tag: "RateLimited", retry_after: null }, twice: true, foreign: false } as const

const rejected = attempt(0, "Rejected")
const update = (change: number, joins: boolean) => step({ do: "update", pick: 0, change }, { joins })
const useLink = step({ do: "use link", link: 0, how: 0, change: 0, pick: 0, body: 0, meanwhile: null })
const two = { instances: 2, skews: [0, 0] }

/** What chance brings seldom, and the last one, which broke a law once. */
export const seldom: ReadonlyArray<History> = [
  // A report is repeated much later, on another instance, and when its text has just expired.
  {
    ...history(
      ...[create(0), ask, goOn(0, "Rejected"), goOn(0, "Rejected", { instance: 1, wait: 59 * 60_000 })],
      goOn(0, "Rejected", { wait: 3 * 60_000 })
    ),
    ...two,
    skews: [0, 300_000]
  },
  // An instance learns the database's time between two reports of one attempt.
  {
    ...history(
      ...[create(0, { instance: 1 }), step({ do: "ask", ...request }, { instance: 1 })],
      step({ do: "go on", attempt: 0, ...again }, { wait: 6000, faults: [[0, "lost before"]] })
    ),
    ...{ instances: 2, skews: [-1_440_000_000, -1_440_000_000] }
  },
  // A call of a request that tries a key is repeated.
  history(
    ...[create(0), create(0), ask, goOn(0, "Rejected"), goOn(0, "Rejected")],
    ...[step({ do: "ask", ...request }, { wait: 61_000 }), goOn(0, "UpstreamFailed"), goOn(1, "UpstreamFailed")]
  ),
  history(create(0), create(0), create(0), ask, goOn(0, "UpstreamFailed"), goOn(0, "UpstreamFailed")),
  // A link has stored a key that is replaced since.
  history(
    ...[step({ do: "link", tenant: 0, purpose: 0, provider: 0, pick: 0 }), useLink],
    ...[update(7, true), update(8, true), useLink]
  ),
  // A key whose row is locked is refused, and then another one.
  history(create(0), step({ do: "lock row", pick: 0, millis: 120_000 }), create(0), rejected, rejected),
  // A link is revoked while its write waits.
  history(
    step({ do: "link", tenant: 0, purpose: 0, provider: 0, pick: 0 }),
    { ...useLink, faults: [[2, "locked"]] },
    step({ do: "revoke link", link: 0 }, { wait: 50, joins: false })
  ),
  // A workspace goes while a create is on its way.
  history(
    create(0, { faults: [[2, "locked"]] }),
    step({ do: "delete workspace", tenant: 0 }, { wait: 50, joins: false })
  ),
  history(create(1), attempt(0, "Succeeded"), attempt(0, "Succeeded", 0, { wait: 780_000 })),
  { ...history(create(0), create(0), rejected, rejected, step({ do: "restart", gently: true })), seed: 6 },
  { ...history(create(0), update(0, true), update(1, false), update(6, false)), seed: 7 },
  history(create(0), step({ do: "refuse models", tenant: 0 })),
  history(create(0), rejected, attempt(0, "UpstreamFailed", 0, { wait: 61_000 }), attempt(0, "Succeeded")),
  {
    ...history(
      ...[create(0), rejected, attempt(0, "Succeeded", 0, { wait: 61_000, instance: 1 })],
      step({ do: "plan", ...request }, { wait: 6000 })
    ),
    ...two
  },
  // An instance hears of a longer cooldown while it tries the key.
  {
    ...history(
      ...[create(0), attempt(600_000, "Succeeded", 0, { instance: 1 }), rejected],
      attempt(600_000, "Rejected", 0, { instance: 1, wait: 6000 }),
      attempt(600_000, "Succeeded", 31_000, { wait: 56_000 }),
      attempt(0, "Succeeded", 0, { wait: 7000, joins: false })
    ),
    ...two
  }
]
