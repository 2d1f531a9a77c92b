import { DateTime, type Duration, Effect, Layer, References } from "effect"
import { AuditLog, countLimit } from "../port/AuditLog.ts"
import type { FamilyName } from "../runtime/families.ts"
import { KekRegistry } from "../port/KekRegistry.ts"
import { makeMeter } from "../runtime/Meter.ts"
import { Draining, Readiness } from "../port/Readiness.ts"

/** Interval between queries, however often the series are exported. */
const usualInterval = "5 seconds"

interface Keys {
  readonly wrapsLimit: number
  readonly primary: () => string | undefined
}

/** Series read from the database. */
export const layer = ({ primary, wrapsLimit }: Keys, interval: Duration.Input = usualInterval) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { gauge } = yield* makeMeter
      const audit = yield* AuditLog
      const keys = yield* KekRegistry
      const readiness = yield* Readiness
      const isDraining = yield* Draining
      gauge("byok.kek.wraps.limit", {}, () => wrapsLimit)

      /** Makes a function that sets values by key: a series begins with its first value and ends without one. */
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
      const showUnsealed = makeSeries("byok.audit.unsealed_entries")
      const showAge = makeSeries("byok.kek.primary.age")
      const showWraps = makeSeries("byok.kek.wraps", (kek_id) => ({ kek_id }))
      let ready: number | undefined

      const readReady = Effect.map(readiness.problems, (problems) => {
        if (ready === undefined) gauge("byok.ready", {}, () => (isDraining() ? 0 : (ready ?? 0)))
        ready = problems.length === 0 ? 1 : 0
      })
      const readUnsealed = Effect.map(audit.countUnsealed(countLimit + 1), (count) => showUnsealed([["", count]]))
      const readKeys = Effect.gen(function* () {
        const keks = yield* keys.live
        const now = yield* DateTime.now
        const registered_at = keks.find(({ kek_id }) => kek_id === primary())?.registered_at
        showWraps(keks.map(({ kek_id, wraps }) => [kek_id, wraps]))
        // The clock of the database may be ahead.
        showAge(
          registered_at ? [["", Math.max(0, (now.epochMilliseconds - registered_at.epochMilliseconds) / 1000)]] : []
        )
      })
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
