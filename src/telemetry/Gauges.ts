import { monitorEventLoopDelay } from "node:perf_hooks"
import { DateTime, type Duration, Effect, Layer, References } from "effect"
import { AuditLog, countLimit } from "../port/AuditLog.ts"
import type { FamilyName } from "../runtime/families.ts"
import { KekRegistry } from "../port/KekRegistry.ts"
import { makeMeter } from "../runtime/Meter.ts"
import { Draining, Readiness } from "../port/Readiness.ts"

/** Exports readiness, unsealed audit entries, wraps of KEKs and the primary KEK's age: queried every `interval`. */
export const storeLayer = ({ primary, wrapsLimit }: KeyFacts, interval: Duration.Input = "5 seconds") =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { gauge } = yield* makeMeter
      const audit = yield* AuditLog
      const registry = yield* KekRegistry
      const readiness = yield* Readiness
      const isDraining = yield* Draining
      gauge("byok.kek.wraps.limit", {}, () => wrapsLimit)

      /**
       * Makes a function that sets all values of a family; the key is "" if it has only one series. A series appears
       * with its first value, and disappears when it gets none.
       */
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

      const updateReadiness = Effect.map(readiness.problems, (problems) => {
        if (isReady === undefined) gauge("byok.ready", {}, () => (isReady === true && !isDraining() ? 1 : 0))
        isReady = problems.length === 0
      })
      // Counting stops one above the limit, which stands for any larger count.
      const updateUnsealed = Effect.map(audit.countUnsealed(countLimit + 1), (count) => setUnsealed([["", count]]))
      const updateKeys = Effect.gen(function* () {
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
      const updateAll = Effect.all(
        [updateReadiness, updateUnsealed, updateKeys].map((update) => Effect.catchCause(update, () => Effect.void)),
        { discard: true }
      )
      yield* Effect.forkScoped(
        Effect.provideService(
          Effect.forever(Effect.andThen(updateAll, Effect.sleep(interval))),
          References.TracerEnabled,
          false
        )
      )
    })
  )

interface KeyFacts {
  /** Number of wraps above which a key-encryption key refuses to seal. */
  readonly wrapsLimit: number
  /** The id of the key that seals, if any. */
  readonly primary: () => string | undefined
}

/** Exports CPU, memory, start and version of this process, and the delay of its event loop in the last `window`. */
export const processLayer = (version: string, window: Duration.Input = "10 seconds") =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { gauge, observedCounter } = yield* makeMeter
      observedCounter("process.cpu.time", { "cpu.mode": "user" }, () => process.cpuUsage().user / 1e6)
      observedCounter("process.cpu.time", { "cpu.mode": "system" }, () => process.cpuUsage().system / 1e6)
      const startTime = Date.now() / 1000 - process.uptime()
      gauge("process.start.time", {}, () => startTime)
      gauge("process.memory.usage", {}, () => process.memoryUsage.rss())
      gauge("byok.build.info", { version }, () => 1)

      const samples = yield* Effect.acquireRelease(
        Effect.sync(() => {
          const samples = monitorEventLoopDelay({ resolution: samplingMillis })
          samples.enable()
          return samples
        }),
        (samples) => Effect.sync(() => samples.disable())
      )
      let delay = { p50: 0, p99: 0, max: 0 }
      const delayOf = (nanoseconds: number) => Math.max(0, nanoseconds / 1e9 - samplingMillis / 1000)
      const summarize = Effect.sync(() => {
        if (samples.count === 0) return
        const [p50, p99] = [samples.percentile(50), samples.percentile(99)]
        delay = { p50: delayOf(p50), p99: delayOf(p99), max: delayOf(samples.max) }
        samples.reset()
      })
      gauge("nodejs.eventloop.delay.p50", {}, () => delay.p50)
      gauge("nodejs.eventloop.delay.p99", {}, () => delay.p99)
      gauge("nodejs.eventloop.delay.max", {}, () => delay.max)
      yield* Effect.forkScoped(Effect.forever(Effect.andThen(Effect.sleep(window), summarize)))
    })
  )

/** Interval at which Node samples the event loop, in milliseconds: how long a sample without delay takes. */
const samplingMillis = 20
