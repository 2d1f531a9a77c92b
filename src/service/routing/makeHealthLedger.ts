import { Effect } from "effect"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { type Health, observe, type Pause, type Report } from "../../domain/routing/Health.ts"
import { type ParkingChange, Parkings } from "../../port/Parkings.ts"
import { makeRouterMeter } from "./RouterMeter.ts"

/** What the database said of a credential's health, and when reading that began (monotonic clock). */
export interface StoredHealth {
  readonly stored: Health | undefined
  readonly read_at: number
}

/** What this process knows of a credential beyond what a snapshot says. */
interface Entry {
  health: Health | undefined
  /** Changes that are not stored yet. */
  unstored: number
  /** When the last change was stored, on the monotonic clock. */
  stored_at: number
}

/** How many changes one statement stores. */
const maxBatch = 500

/** How many changes wait for a database that does not answer. Others hold in this process only, until a pool is read. */
const maxWaiting = 10_000

const retryAfter = "1 second"
const closingTimeout = "1 second"

const withTrialOf = (pause: Pause, known: Pause | null | undefined): Pause =>
  known == null || known.tried_at === null ? pause : { ...pause, tried_at: known.tried_at }

/** The stored health with the trials that are out in this process. */
const withTrials = (stored: Health | undefined, known: Health | undefined): Health | undefined =>
  stored === undefined || known?.key_version !== stored.key_version
    ? stored
    : {
        ...stored,
        whole: stored.whole && withTrialOf(stored.whole, known.whole),
        models: new Map(
          Array.from(stored.models, ([model, pause]) => [model, withTrialOf(pause, known.models.get(model))] as const)
        )
      }

const hasTrial = (health: Health | undefined): boolean =>
  health !== undefined &&
  (health.whole?.tried_at != null || Array.from(health.models.values()).some(({ tried_at }) => tried_at !== null))

/** The pauses of a health by model, that of the whole key under ''. */
const pausesOf = (health: Health | undefined, key_version: number): ReadonlyMap<string, Pause> => {
  if (health?.key_version !== key_version) return new Map()
  return health.whole === null ? health.models : new Map([...health.models, ["", health.whole]])
}

type Change = Omit<ParkingChange, "account_id" | "credential_id">

/** What differs between two healths of a key. Who tries it is this process's own business. */
const changesOf = (
  before: Health | undefined,
  after: Health | undefined,
  key_version: number
): ReadonlyArray<Change> => {
  const [old, now] = [pausesOf(before, key_version), pausesOf(after, key_version)]
  const changes: Array<Change> = []
  for (const [model, { cause, strikes, until }] of now) {
    const known = old.get(model)
    if (known?.until !== until || known.strikes !== strikes) {
      changes.push({ model, key_version, cause, strikes, until, ended: false })
    }
  }
  for (const [model, { cause, strikes, until }] of old) {
    if (!now.has(model)) changes.push({ model, key_version, cause, strikes, until, ended: true })
  }
  return changes
}

/**
 * What attempts have shown of keys. A report holds in this process at once and is stored in the background; from then on
 * the database speaks for all processes, this one included.
 */
export const makeHealthLedger = Effect.gen(function* () {
  const { store } = yield* Parkings
  const { parked } = yield* makeRouterMeter
  const fork = Effect.runForkWith(yield* Effect.context())
  const entries = new Map<CredentialId, Entry>()
  const waiting = new Map<string, ParkingChange>()
  let isStoring = false
  let isClosed = false

  const settle = (batch: ReadonlyArray<ParkingChange>) => {
    const now = performance.now()
    for (const { credential_id } of batch) {
      const entry = entries.get(credential_id)
      if (entry === undefined) continue
      entry.unstored -= 1
      entry.stored_at = now
    }
  }

  const take = () => {
    const batch = Array.from(waiting).slice(0, maxBatch)
    for (const [name] of batch) waiting.delete(name)
    return batch
  }

  /** A change that a newer one has replaced meanwhile counts as stored. */
  const putBack = (batch: ReturnType<typeof take>) => {
    for (const [name, change] of batch) {
      if (waiting.has(name)) settle([change])
      else waiting.set(name, change)
    }
  }

  const storeBatch = Effect.suspend(() => {
    const batch = take()
    const changes = batch.map(([, change]) => change)
    return Effect.matchCause(store(changes), {
      onSuccess: () => {
        settle(changes)
        return true
      },
      onFailure: () => {
        putBack(batch)
        return false
      }
    })
  })

  const storeAll: Effect.Effect<void> = Effect.suspend(() =>
    waiting.size === 0 || isClosed
      ? Effect.sync(() => void (isStoring = false))
      : Effect.flatMap(storeBatch, (stored) => (stored ? storeAll : Effect.andThen(Effect.sleep(retryAfter), storeAll)))
  )

  const enqueue = (account_id: AccountId, credential_id: CredentialId, entry: Entry, change: Change) => {
    const name = `${credential_id} ${change.model}`
    if (!waiting.has(name)) {
      if (waiting.size >= maxWaiting) {
        entry.stored_at = performance.now()
        return
      }
      entry.unstored += 1
    }
    waiting.set(name, { account_id, credential_id, ...change })
    if (isStoring) return
    isStoring = true
    fork(storeAll)
  }

  yield* Effect.addFinalizer(() => {
    isClosed = true
    return waiting.size === 0 ? Effect.void : Effect.ignore(Effect.timeout(storeBatch, closingTimeout))
  })

  const healthOf = (credential_id: CredentialId, { read_at, stored }: StoredHealth): Health | undefined => {
    const entry = entries.get(credential_id)
    if (entry === undefined) return stored
    if (entry.unstored > 0 || read_at <= entry.stored_at) return entry.health
    entry.health = withTrials(stored, entry.health)
    if (!hasTrial(entry.health)) entries.delete(credential_id)
    return entry.health
  }

  const entryOf = (credential_id: CredentialId): Entry => {
    const known = entries.get(credential_id)
    if (known !== undefined) return known
    const entry: Entry = { health: undefined, unstored: 0, stored_at: Number.NEGATIVE_INFINITY }
    entries.set(credential_id, entry)
    return entry
  }

  return {
    healthOf,
    /** A trial was taken: only this process knows. */
    admit: (credential_id: CredentialId, health: Health | undefined): void => {
      if (hasTrial(health)) entryOf(credential_id).health = health
    },
    report: (account_id: AccountId, credential_id: CredentialId, known: StoredHealth, report: Report): void => {
      const before = healthOf(credential_id, known)
      const after = observe(before, report)
      if (after === before) return
      const entry = entryOf(credential_id)
      entry.health = after
      for (const change of changesOf(before, after, report.key_version)) {
        if (!change.ended) parked(change.cause)
        enqueue(account_id, credential_id, entry, change)
      }
    }
  }
})
