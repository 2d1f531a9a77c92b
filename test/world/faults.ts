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
  "a plan joins a read that began before the request": 328,
  "a snapshot counts as fresh for twice as long": 51,
  "a lease accepts a row that has changed": 1165,
  "a deleted workspace still routes with fresh snapshots": 671,
  "a cached token is used although its key does not open": 2190,
  "a row is visible to every account": 28,
  "a credential may name an API key of any account": 90,
  "the database deletes cooldowns that processes still remember": 450,
  "changes of locked rows are dropped": 231,
  "a locked row delays the others of its batch": 5891,
  "a repeated report is recorded again": 89,
  "a report enclosed in a request opens the next attempt": 30,
  "a repeated report enclosed in a request leaves the route open": 1414,
  "a link's key pair decrypts two keys": 2158,
  "a link writes after its revocation": 3536,
  "a link that serves once serves again": 1008,
  "a used link does not tell what it has stored": 1008,
  "an altered row counts as verified": 102,
  "changes that fail to be stored are dropped": 274,
  "an update that loses a race is not retried": 239,
  "an event names no link": 97,
  "Retry-After is not limited to an hour": 27,
  "a report is recorded before its answer": 17,
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
const open = step({ do: "open", ...request })
type Reported = "Succeeded" | "Rejected" | "UpstreamFailed"
const attempt = (freshness: number, outcome: Reported, takes = 0, more: Partial<Step> = {}) =>
  step({ do: "attempt", ...request, freshness, step: 0, outcome: { _tag: outcome }, takes }, more)
const report = (route: number, outcome: Reported, more: Partial<Step> = {}) =>
  step({ do: "report", route, off: 0, outcome: { _tag: outcome }, goesOn: true, twice: false }, more)

const outcome = { _tag: "Rejected" } as const
const rejected = attempt(0, "Rejected")
/** A report so many milliseconds after its route was opened. */
const late = (after: number) => ({ ...history(create(0), open, step({ do: "report late", route: 0, after })), seed: 4 })
const update = (change: number, joins: boolean) => step({ do: "update", pick: 0, change }, { joins })
const lose = step({ do: "lose", route: 0 })
const two = { instances: 2, skews: [0, 0] }

/** What chance brings seldom, and the last one, which broke a law once. */
export const seldom: ReadonlyArray<History> = [
  // Routes end soon after one another.
  history(
    ...[create(0), open, open, report(1, "Succeeded"), report(0, "Succeeded", { wait: 500 })],
    step({ do: "ask again", route: 0, after: 59_999 })
  ),
  history(
    ...[create(0), open, open, report(1, "Succeeded"), report(0, "Succeeded", { wait: 30_000 })],
    step({ do: "ask again", route: 1, after: 61_001 })
  ),
  // A route ends while its report is answered.
  history(
    ...[create(0), create(0), open, report(0, "Rejected", { wait: 1500, faults: [[0, "locked"]] })],
    step({ do: "abandon", route: 0 }, { wait: 70, joins: false })
  ),
  late(599_999),
  late(600_000),
  history(create(0), create(0), create(0), open, report(0, "UpstreamFailed"), report(0, "UpstreamFailed")),
  history(create(0), open, lose),
  history(create(0), open, step({ do: "report", ...{ route: 0, off: 1, goesOn: true, twice: false, outcome } })),
  history(create(0), create(0), create(0), open, report(0, "Rejected"), lose, report(0, "Rejected")),
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
  },
  // A route asks twice within a second for an API key that was revoked.
  history(
    ...[create(0), create(0), create(0), step({ do: "open", ...request, model: 1, apiKey: 0 })],
    step({ do: "revoke", tenant: 0, apiKey: 0 }, { wait: 6000 }),
    ...[report(0, "Rejected", { wait: 400 }), report(0, "Rejected", { wait: 999 })]
  )
]
