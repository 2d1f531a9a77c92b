import { LRUCache } from "lru-cache"
import { Context, Effect, Layer } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { makeMeter } from "./Meter.ts"

/** Bounds the memory that requests, and cached pools and tokens, take in this process. Accounts share it. */
export class MemoryBudget extends Context.Service<MemoryBudget, ReturnType<typeof makeMemoryBudget>>()(
  "byok/MemoryBudget"
) {}

/** A budget of `total` bytes, with its metrics. */
export const layer = (total: number) =>
  Layer.effect(
    MemoryBudget,
    Effect.map(makeMeter, ({ gauge }) => {
      const budget = makeMemoryBudget(total)
      for (const use of uses) gauge("byok.memory.held", { use }, () => budget.held[use])
      gauge("byok.memory.held", { use: "cache" }, budget.cached)
      gauge("byok.memory.budget", {}, () => total)
      return budget
    })
  )

/** What memory is held for, and the share of free memory that an account may hold for it. */
const shares = { body: 0.5, page: 0.5, pool: 1, gateway: 1 }
type Use = keyof typeof shares
const uses = Object.keys(shares) as ReadonlyArray<Use>

const mebibyte = 1024 * 1024

/** The memory that one request holds. */
export interface Holding {
  /** Takes `bytes` more, or takes nothing and returns false. */
  readonly tryTake: (bytes: number) => boolean
  /** Takes `bytes` more. Fails if the account holds its share; logs if no account could ever hold as much. */
  readonly take: (bytes: number) => Effect.Effect<void, ServiceUnavailable>
  /** Gives back all but `bytes`; all by default. */
  readonly giveBack: (bytes?: number) => void
}

/** A part of the cache, with keys of its own. */
export interface Cache<A> {
  /** Marks the entry as recently used. */
  readonly get: (key: string) => A | undefined
  /** Caches a value of `bytes`, if memory allows. */
  readonly set: (key: string, value: A, bytes: number) => void
  readonly delete: (key: string) => void
  readonly entries: () => ReadonlyArray<readonly [key: string, value: A]>
}

interface Entry {
  readonly value: unknown
  readonly bytes: number
  readonly dropped: () => void
}

/**
 * Makes a budget of `total` bytes, whose threshold moves: an account may hold as much as is free, or a share of that.
 * So one account gets half of the budget, three get a quarter each, and the next one finds a quarter free. Invariant:
 * held and cached bytes never exceed the total; a taking never waits; and the cache makes room for it, least recently
 * used entries first.
 */
export const makeMemoryBudget = (total: number) => {
  /** Held bytes of each use, and of each account. */
  const held: Record<Use, number> = { body: 0, page: 0, pool: 0, gateway: 0 }
  const accounts = new Map<string, number>()
  let used = 0
  let caches = 0
  const entries = new LRUCache<string, Entry>({
    maxSize: total,
    sizeCalculation: ({ bytes }) => bytes,
    disposeAfter: ({ dropped }) => dropped()
  })

  /** Evicts entries until `bytes` more fit. */
  const evictFor = (bytes: number) => {
    while (used + entries.calculatedSize + bytes > total && entries.size > 0) entries.pop()
  }

  const count = (account: string, use: Use, bytes: number) => {
    const mine = (accounts.get(account) ?? 0) + bytes
    if (mine === 0) accounts.delete(account)
    else accounts.set(account, mine)
    held[use] += bytes
    used += bytes
  }

  return {
    held,
    cached: () => entries.calculatedSize,
    /** Begins to hold memory for a request of an account. */
    hold: (account: string, use: Use): Holding => {
      let mine = 0
      const tryTake = (bytes: number) => {
        if ((accounts.get(account) ?? 0) + bytes > shares[use] * (total - used)) return false
        evictFor(bytes)
        mine += bytes
        count(account, use, bytes)
        return true
      }
      return {
        tryTake,
        take: (bytes) =>
          Effect.suspend(() => {
            if (tryTake(bytes)) return Effect.void
            const most = shares[use] * total
            if (bytes <= most) return Effect.fail(new ServiceUnavailable())
            const [needed, allowed] = [bytes, most].map((bytes) => Math.ceil(bytes / mebibyte))
            const warning = `A ${use} of ${needed} MiB was refused: MEMORY_BUDGET leaves it ${allowed} MiB`
            return Effect.andThen(Effect.logWarning(warning), new ServiceUnavailable())
          }),
        giveBack: (bytes = 0) => {
          const excess = mine - bytes
          if (excess <= 0) return
          mine -= excess
          count(account, use, -excess)
        }
      }
    },
    /** Makes a part of the cache. `dropped` is called with each entry that is evicted, replaced or deleted. */
    makeCache: <A>(dropped: (value: A) => void): Cache<A> => {
      const prefix = `${(caches += 1)} `
      const keyOf = (key: string) => prefix + key
      return {
        get: (key) => entries.get(keyOf(key))?.value as A | undefined,
        set: (key, value, size) => {
          const bytes = Math.max(1, Math.ceil(size))
          if (used + bytes > total) {
            entries.delete(keyOf(key))
            return dropped(value)
          }
          evictFor(bytes)
          entries.set(keyOf(key), { value, bytes, dropped: () => dropped(value) })
        },
        delete: (key) => void entries.delete(keyOf(key)),
        entries: () =>
          Array.from(entries.entries()).flatMap(([key, { value }]) =>
            key.startsWith(prefix) ? [[key.slice(prefix.length), value as A] as const] : []
          )
      }
    }
  }
}
