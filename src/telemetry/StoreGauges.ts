import { DateTime, type Duration, Effect, Layer, References } from "effect"
import { countLimit } from "../domain/countLimit.ts"
import { AuditLog } from "../port/AuditLog.ts"
import { KekRegistry, type RegisteredKey } from "../port/KekRegistry.ts"
import { Draining, Readiness } from "../port/Readiness.ts"
import { makeMeter } from "../port/Meter.ts"

/** How often the database is asked, whoever exports the series and however often. */
const usualInterval = "5 seconds"

/** The wraps of one key, and what ends their series. */
interface Wraps {
  wraps: number
  readonly remove: () => void
}

interface Keys {
  readonly wrapsLimit: number
  /** The id of the key that seals now. */
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
      const wraps = new Map<string, Wraps>()
      let ready: number | undefined
      let unsealed: number | undefined
      let age = 0
      let removeAge: (() => void) | undefined
      gauge("byok.kek.wraps.limit", {}, () => wrapsLimit)

      const readReady = Effect.map(readiness.problems, (problems) => {
        if (ready === undefined) gauge("byok.ready", {}, () => (isDraining() ? 0 : (ready ?? 0)))
        ready = problems.length === 0 ? 1 : 0
      })
      const readUnsealed = Effect.map(audit.unsealed(countLimit + 1), (found) => {
        if (unsealed === undefined) gauge("byok.audit.unsealed_entries", {}, () => unsealed ?? 0)
        unsealed = found
      })
      const showAge = (seconds: number | undefined) => {
        if (seconds === undefined) {
          removeAge?.()
          removeAge = undefined
          return
        }
        age = seconds
        removeAge ??= gauge("byok.kek.primary.age", {}, () => age)
      }
      const showWraps = (found: ReadonlyArray<RegisteredKey>) => {
        const live = new Map(found.map(({ kek_id, wraps }) => [kek_id, wraps]))
        for (const [kek_id, { remove }] of wraps) {
          if (live.has(kek_id)) continue
          remove()
          wraps.delete(kek_id)
        }
        for (const [kek_id, count] of live) {
          const known = wraps.get(kek_id)
          if (known !== undefined) {
            known.wraps = count
            continue
          }
          const entry: Wraps = { wraps: count, remove: gauge("byok.kek.wraps", { kek_id }, () => entry.wraps) }
          wraps.set(kek_id, entry)
        }
      }
      const readKeys = Effect.gen(function* () {
        const found = yield* keys.live
        const now = yield* DateTime.now
        const registered_at = found.find(({ kek_id }) => kek_id === primary())?.registered_at
        showWraps(found)
        // The clock of the database may be ahead.
        showAge(registered_at && Math.max(0, (now.epochMilliseconds - registered_at.epochMilliseconds) / 1000))
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
