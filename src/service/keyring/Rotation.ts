import { Context, Effect, Layer, Result } from "effect"
import { KekRegistry, type KekUsage, Rewrapper } from "../../port/KekRegistry.ts"

/** Progress of a rewrap; `total` is the number of credentials under other keys when it began. */
export interface RewrapProgress {
  readonly rewrapped: number
  readonly failed: number
  readonly total: number
}

export interface RewrapOptions {
  readonly rate: number
  readonly batch?: number
  readonly onProgress?: (progress: RewrapProgress) => Effect.Effect<void>
}

/** A key in the keyring, or one that only the database knows. */
export interface KeyStatus extends Omit<KekUsage, "retired"> {
  /** `pending` has never sealed; `missing` is not in the keyring although credentials name it. */
  readonly role: "primary" | "pending" | "decrypt-only" | "missing" | "retired"
  readonly may_be_retired: boolean
}

/** Maximum passes: locked rows, and rows sealed under an old key meanwhile, need another one. */
const passes = 5
const pause = "1 second"

export type RewrapResult = Effect.Success<ReturnType<Rotation["Service"]["rewrap"]>>

/** Moves credentials to the primary key of the keyring while the service runs. */
export class Rotation extends Context.Service<Rotation>()("byok/Rotation", {
  make: Effect.gen(function* () {
    const registry = yield* KekRegistry
    const { kek_ids, primary, rewrap, spend } = yield* Rewrapper

    const outstanding = Effect.map(registry.countMissing([primary]), (keys) =>
      keys.reduce((sum, { credentials }) => sum + credentials, 0)
    )

    return {
      rewrap: Effect.fn("Rotation.rewrap")(function* ({
        batch = 500,
        onProgress = () => Effect.void,
        rate
      }: RewrapOptions) {
        const size = Math.min(batch, rate)
        const total = yield* outstanding
        const failed = new Map<string, string>()
        let rewrapped = 0
        let left = total
        /** Wraps spent but not yet used; negative if a repeated batch used more. */
        let reserved = 0

        const pass = Effect.gen(function* () {
          let after: string | undefined
          failed.clear()
          do {
            const needed = Math.min(size, left) - reserved
            if (needed > 0) {
              yield* spend(needed)
              reserved += needed
            }
            const done = yield* registry.rewrapBatch({ primary, after, size }, (sealed, context) =>
              Effect.tap(rewrap(sealed, context), (result) =>
                Effect.sync(() => {
                  if (Result.isSuccess(result)) reserved -= 1
                })
              )
            )
            for (const { failure, id } of done.failed) failed.set(id, failure.message)
            rewrapped += done.rewrapped
            after = done.next
            const attempted = done.rewrapped + done.failed.length
            if (attempted === 0) continue
            left = Math.max(0, left - attempted)
            yield* onProgress({ rewrapped, failed: failed.size, total })
            if (after !== undefined) yield* Effect.sleep((1000 * attempted) / rate)
          } while (after !== undefined)
          left = yield* outstanding
        })

        for (let n = 1; n <= passes && left > failed.size; n++) {
          if (n > 1) yield* Effect.sleep(pause)
          yield* pass
        }
        if (reserved < 0) yield* spend(-reserved)
        const reasons = Array.from(failed, ([id, reason]) => ({ id, reason }))
        /** `left` counts credentials under other keys, failures included. */
        return { rewrapped, left, failed: reasons }
      }),

      /** Number of credentials under a key other than the primary one. */
      outstanding,

      /** The first `limit` credentials under a key that the keyring lacks, and their number. */
      stranded: Effect.fn("Rotation.stranded")(function* (limit: number) {
        const missing = yield* registry.countMissing(kek_ids)
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

      /** The keys of the keyring in order, then the others. */
      status: Effect.fn("Rotation.status")(function* () {
        const used = yield* registry.list
        const unused = { credentials: 0, wraps: 0, retired: false }
        const ring = kek_ids.map((kek_id): KeyStatus => {
          const { retired, ...use } = used.find((key) => key.kek_id === kek_id) ?? { kek_id, ...unused }
          const { credentials, wraps } = use
          const neverUsed = credentials === 0 && wraps === 0
          const role = kek_id === primary ? "primary" : retired ? "retired" : neverUsed ? "pending" : "decrypt-only"
          const may_be_retired = role === "decrypt-only" && credentials === 0
          return { ...use, role, may_be_retired }
        })
        const others = used
          .filter(({ kek_id }) => !kek_ids.includes(kek_id))
          .map(({ retired: _, ...key }): KeyStatus => ({
            ...key,
            role: key.credentials > 0 ? "missing" : "retired",
            may_be_retired: false
          }))
        return [...ring, ...others]
      })
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
