import { DateTime, type Duration, Effect, Layer, References } from "effect"
import { AuditLog, countLimit } from "../port/AuditLog.ts"
import type { FamilyName } from "../runtime/families.ts"
import { KekRegistry } from "../port/KekRegistry.ts"
import { makeMeter } from "../runtime/Meter.ts"
import { Draining, Readiness } from "../port/Readiness.ts"

/** Exports readiness, unsealed audit entries, and wraps and age of key-encryption keys. Queries them every `interval`. */
export const layer = ({ primary, wrapsLimit }: KeyFacts, interval: Duration.Input = "5 seconds") =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { gauge } = yield* makeMeter
      const audit = yield* AuditLog
      const registry = yield* KekRegistry
      const readiness = yield* Readiness
      const isDraining = yield* Draining
      gauge("byok.kek.wraps.limit", {}, () => wrapsLimit)

      /** Makes a function that sets all values of a family. A series begins with its first value and ends without one. */
      const makeSeries = (family: FamilyName, attributesOf: (key: string) => Record<string, string> = () => ({})) => {
        let values = new Map<string, number>()
        const removals = new Map<string, () => void>()
        return (entries: ReadonlyArray<readonly [key: string, value: number]>) => {
          values = new Map(entries)
          for (const [key, remove] of removals) {
            if (!values.has(key) && removals.delete(key)) remove()
          }
          for (const key of values.keys()) {
            const read = () => values.get(key) ?? 0
            if (!removals.has(key)) removals.set(key, gauge(family, attributesOf(key), read))
          }
        }
      }
      const setUnsealed = makeSeries("byok.audit.unsealed_entries")
      const setPrimaryAge = makeSeries("byok.kek.primary.age")
      const setWraps = makeSeries("byok.kek.wraps", (kek_id) => ({ kek_id }))
      let isReady: boolean | undefined

      const readReady = Effect.map(readiness.problems, (problems) => {
        if (isReady === undefined) gauge("byok.ready", {}, () => (isReady === true && !isDraining() ? 1 : 0))
        isReady = problems.length === 0
      })
      const readUnsealed = Effect.map(audit.countUnsealed(countLimit + 1), (count) => setUnsealed([["", count]]))
      const readKeys = Effect.gen(function* () {
        const keks = yield* registry.live
        const now = yield* DateTime.now
        const registered_at = keks.find(({ kek_id }) => kek_id === primary())?.registered_at
        setWraps(keks.map(({ kek_id, wraps }) => [kek_id, wraps]))
        // The clock of the database may be ahead.
        setPrimaryAge(
          registered_at ? [["", Math.max(0, (now.epochMilliseconds - registered_at.epochMilliseconds) / 1000)]] : []
        )
      })
      // After a failed query, the gauges keep their last values.
      const readAll = Effect.all(
        [readReady, readUnsealed, readKeys].map((read) => Effect.catchCause(read, () => Effect.void)),
        { discard: true }
      )
      yield* Effect.forkScoped(
        Effect.provideService(
          Effect.forever(Effect.andThen(readAll, Effect.sleep(interval))),
          References.TracerEnabled,
          false
        )
      )
    })
  )

interface KeyFacts {
  /** Number of wraps at which a key-encryption key refuses to seal. */
  readonly wrapsLimit: number
  /** The id of the key that seals. */
  readonly primary: () => string | undefined
}
