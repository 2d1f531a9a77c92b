import { Context, Effect, Layer, Result } from "effect"
import { KekRegistry, type KekUsage, Rewrapper } from "../../port/KekRegistry.ts"

/** Progress of `rewrap`; `total` is the number of credentials to rewrap when it began. */
export interface RewrapProgress {
  readonly rewrapped: number
  readonly failed: number
  readonly total: number
}

/** `rate` limits credentials per second, `batch` credentials per transaction. */
export interface RewrapOptions {
  readonly rate: number
  readonly batch?: number
  readonly onProgress?: (progress: RewrapProgress) => Effect.Effect<void>
}

/** The use of a key-encryption key that the keyring has, or that only the database knows. */
export interface KeyStatus extends Omit<KekUsage, "retired"> {
  /**
   * `pending`: it has never sealed. `decrypt-only`: it only opens keys that it once sealed. `missing`: credentials name
   * it, but the keyring lacks it. `retired`: it is retired, or has sealed but is neither in the keyring nor named.
   */
  readonly role: "primary" | "pending" | "decrypt-only" | "missing" | "retired"
  readonly may_be_retired: boolean
}

/** Maximum passes. Rows that were locked, or sealed under an old key meanwhile, need another pass. */
const maxPasses = 5
const pauseBetweenPasses = "1 second"

export type RewrapResult = Effect.Success<ReturnType<Rotation["Service"]["rewrap"]>>

/**
 * Rewraps the data keys of credentials under the primary key-encryption key (KEK) while the service runs, and reports
 * the use of each key.
 */
export class Rotation extends Context.Service<Rotation>()("byok/Rotation", {
  make: Effect.gen(function* () {
    const registry = yield* KekRegistry
    const { kek_ids, primary, rewrap, spend } = yield* Rewrapper

    const outstanding = Effect.map(registry.countExcept([primary]), (keys) =>
      keys.reduce((sum, { credentials }) => sum + credentials, 0)
    )

    return {
      /**
       * Rewraps all credentials under other keys than the primary one, in up to five passes. Returns those whose data
       * key cannot be rewrapped in `failed`. Fails if the primary key has no wraps left.
       */
      rewrap: Effect.fn("Rotation.rewrap")(function* ({
        batch = 500,
        onProgress = () => Effect.void,
        rate
      }: RewrapOptions) {
        const batchSize = Math.min(batch, rate)
        const total = yield* outstanding
        const failed = new Map<string, string>()
        let rewrapped = 0
        let remaining = total
        /** Wraps counted against the limit but not yet made; negative if a retried batch made more. */
        let unusedWraps = 0

        const runPass = Effect.gen(function* () {
          let after: string | undefined
          failed.clear()
          do {
            const needed = Math.min(batchSize, remaining) - unusedWraps
            if (needed > 0) {
              yield* spend(needed)
              unusedWraps += needed
            }
            const result = yield* registry.rewrapBatch({ primary, after, size: batchSize }, (sealed, context) => {
              const wrapped = rewrap(sealed, context)
              if (Result.isSuccess(wrapped)) unusedWraps -= 1
              return wrapped
            })
            for (const { failure, id } of result.failed) failed.set(id, failure.message)
            rewrapped += result.rewrapped
            after = result.next
            const attempted = result.rewrapped + result.failed.length
            if (attempted === 0) continue
            remaining = Math.max(0, remaining - attempted)
            yield* onProgress({ rewrapped, failed: failed.size, total })
            if (after !== undefined) yield* Effect.sleep((1000 * attempted) / rate)
          } while (after !== undefined)
          remaining = yield* outstanding
        })

        for (let pass = 1; pass <= maxPasses && remaining > failed.size; pass++) {
          if (pass > 1) yield* Effect.sleep(pauseBetweenPasses)
          yield* runPass
        }
        if (unusedWraps < 0) yield* spend(-unusedWraps)
        /** `left` counts the credentials still under other keys, failures included. */
        return { rewrapped, left: remaining, failed: Array.from(failed, ([id, reason]) => ({ id, reason })) }
      }),

      /** Number of credentials under a key other than the primary one. */
      outstanding,

      /** Returns the first `limit` credentials under keys that the keyring lacks, and the number of all, with links. */
      stranded: Effect.fn("Rotation.stranded")(function* (limit: number) {
        const missing = yield* registry.countExcept(kek_ids)
        const total = missing.reduce((sum, { credentials }) => sum + credentials, 0)
        const credentials = yield* registry.findNaming(
          missing.map(({ kek_id }) => kek_id),
          limit
        )
        return { credentials, total }
      }),

      /** Lets the primary key seal although no key of the keyring has sealed yet. Returns its id. */
      admit: Effect.fn("Rotation.admit")(function* () {
        yield* registry.admit(primary)
        return primary
      }),

      /** Returns the use of each key: those of the keyring in its order, then the others that were ever used. */
      status: Effect.fn("Rotation.status")(function* () {
        const usages = yield* registry.list
        const noUsage = { credentials: 0, wraps: 0, retired: false }
        const inKeyring = kek_ids.map((kek_id): KeyStatus => {
          const { retired, ...usage } = usages.find((key) => key.kek_id === kek_id) ?? { kek_id, ...noUsage }
          const { credentials, wraps } = usage
          const isUnused = credentials === 0 && wraps === 0
          const role = kek_id === primary ? "primary" : retired ? "retired" : isUnused ? "pending" : "decrypt-only"
          const may_be_retired = role === "decrypt-only" && credentials === 0
          return { ...usage, role, may_be_retired }
        })
        const others = usages
          .filter(
            ({ credentials, kek_id, retired, wraps }) =>
              !kek_ids.includes(kek_id) && (credentials > 0 || wraps > 0 || retired)
          )
          .map(({ retired: _, ...key }): KeyStatus => ({
            ...key,
            role: key.credentials > 0 ? "missing" : "retired",
            may_be_retired: false
          }))
        return [...inKeyring, ...others]
      })
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
