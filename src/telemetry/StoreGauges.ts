import { DateTime, type Duration, Effect, Layer, References } from "effect"
import { AuditLog, countLimit } from "../port/AuditLog.ts"
import type { FamilyName } from "../runtime/families.ts"
import { KekRegistry } from "../port/KekRegistry.ts"
import { makeMeter } from "../runtime/Meter.ts"
import { Draining, Readiness } from "../port/Readiness.ts"

/** How often the database is asked, whoever exports the series and however often. */
const usualInterval = "5 seconds"

interface Keys {
  readonly wrapsLimit: number
  readonly primary: () => string | undefined
}

/** What the database knows, as it was last read. */
export const layer = ({ primary, wrapsLimit }: Keys, interval: Duration.Input = usualInterval) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { gauge } = yield* makeMeter
      const audit = yield* AuditLog
      const keys = yield* KekRegistry
      const readiness = yield* Readiness
      const isDraining = yield* Draining
      gauge("byok.kek.wraps.limit", {}, () => wrapsLimit)

      /** Makes a function that shows values by key: a series begins with its first value and ends when it has none. */
      const shown = (family: FamilyName, attributesOf: (key: string) => Record<string, string> = () => ({})) => {
        let values = new Map<string, number>()
        const removals = new Map<string, () => void>()
        return (found: ReadonlyArray<readonly [key: string, value: number]>) => {
          values = new Map(found)
          for (const [key, remove] of removals) {
            if (!values.has(key) && removals.delete(key)) remove()
          }
          for (const key of values.keys()) {
            const read = () => values.get(key) ?? 0
            if (!removals.has(key)) removals.set(key, gauge(family, attributesOf(key), read))
          }
        }
      }
      const showUnsealed = shown("byok.audit.unsealed_entries")
      const showAge = shown("byok.kek.primary.age")
      const showWraps = shown("byok.kek.wraps", (kek_id) => ({ kek_id }))
      let ready: number | undefined

      const readReady = Effect.map(readiness.problems, (problems) => {
        if (ready === undefined) gauge("byok.ready", {}, () => (isDraining() ? 0 : (ready ?? 0)))
        ready = problems.length === 0 ? 1 : 0
      })
      const readUnsealed = Effect.map(audit.unsealed(countLimit + 1), (found) => showUnsealed([["", found]]))
      const readKeys = Effect.gen(function* () {
        const found = yield* keys.live
        const now = yield* DateTime.now
        const registered_at = found.find(({ kek_id }) => kek_id === primary())?.registered_at
        showWraps(found.map(({ kek_id, wraps }) => [kek_id, wraps]))
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
