import { monitorEventLoopDelay } from "node:perf_hooks"
import { type Duration, Effect, Layer } from "effect"
import { makeMeter } from "../runtime/Meter.ts"

/** Exports CPU and memory of this process, the delay of its event loop in the latest `window`, and its version. */
export const layer = (version: string, window: Duration.Input = "10 seconds") =>
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
      const secondsOf = (nanoseconds: number) => Math.max(0, nanoseconds / 1e9 - samplingMillis / 1000)
      const summarize = Effect.sync(() => {
        if (samples.count === 0) return
        const [p50, p99] = [samples.percentile(50), samples.percentile(99)]
        delay = { p50: secondsOf(p50), p99: secondsOf(p99), max: secondsOf(samples.max) }
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
