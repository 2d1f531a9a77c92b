import cluster, { type Worker } from "node:cluster"
import { Deferred, Effect, Layer, Option, Queue } from "effect"
import * as OfProcesses from "../management/OfProcesses.ts"
import { Meter } from "../telemetry/Meter.ts"
import { processGauges } from "../wiring/MetricsExport.ts"
import { hastenWorker } from "./makeDrain.ts"
import { stopSignals } from "./stopSignals.ts"
import { openDatabase } from "../wiring/Persistence.ts"
import { InvalidSetting, secretsOf, type Settings } from "../wiring/Settings.ts"
import { managementPort } from "./managementPort.ts"

const exited = (worker: Worker) =>
  Effect.callback<true>((resume) => {
    if (worker.isDead()) resume(Effect.succeed(true))
    else worker.once("exit", () => resume(Effect.succeed(true)))
  })

const stop = (worker: Worker) =>
  Effect.suspend(() => {
    if (!worker.isDead()) worker.process.kill("SIGTERM")
    return exited(worker)
  })

/** Sent by a process that must not be restarted. */
interface Harmful {
  readonly harmful: string
}
const isHarmful = (message: unknown): message is Harmful =>
  typeof message === "object" && message !== null && "harmful" in message && typeof message.harmful === "string"

/** In a process of several: reports a failure after which it must not be restarted. */
export const reportHarmful = ({ harmful, message }: InvalidSetting) =>
  Effect.callback((resume: (done: Effect.Effect<void>) => void) => {
    const done = () => resume(Effect.void)
    if (harmful === true && cluster.worker !== undefined)
      cluster.worker.send({ harmful: message } satisfies Harmful, done)
    else done()
  })

/** The running processes. One that is starting may have read the keyring before the last SIGHUP. */
type Workers = Map<Worker, "starting" | "starting, to reload" | "serving">

const reloadStarting = (workers: Workers) =>
  workers.forEach((state, worker) => {
    if (state !== "serving") workers.set(worker, "starting, to reload")
  })

const servingOf = (workers: Workers) =>
  Array.from(workers).flatMap(([worker, state]) => (state === "serving" && worker.isConnected() ? [worker] : []))

const reloadAll = (workers: Workers) => {
  reloadStarting(workers)
  for (const worker of servingOf(workers)) worker.process.kill("SIGHUP")
}

/** What the processes share. */
interface Group {
  readonly workers: Workers
  /** Set once all have been told to stop: none is restarted. */
  stopping: boolean
  /** Fails when no process is left that may be restarted. */
  readonly lost: Deferred.Deferred<never, InvalidSetting>
}

/** Runs one process, restarting it whenever it exits unless that does harm; completes once it listens. */
const keepServing = Effect.fnUntraced(function* (settings: Settings, group: Group) {
  const { lost, workers } = group
  let harmful: string | undefined
  const listening = yield* Deferred.make<true, InvalidSetting>()
  const once = Effect.scoped(
    Effect.gen(function* () {
      const worker = yield* Effect.acquireRelease(
        Effect.sync(() => cluster.fork(secretsOf(settings))),
        stop
      )
      workers.set(worker, "starting")
      worker.on("message", (message: unknown) => {
        if (isHarmful(message)) harmful = message.harmful
      })
      worker.once("listening", () => {
        if (workers.get(worker) === "starting, to reload") worker.process.kill("SIGHUP")
        workers.set(worker, "serving")
        Deferred.doneUnsafe(listening, Effect.succeed(true))
      })
      yield* exited(worker)
      workers.delete(worker)
    })
  )
  const restart = Effect.gen(function* () {
    if (group.stopping) return yield* Effect.never
    if (harmful !== undefined) {
      yield* Effect.logError(`A process exited and is not restarted. ${harmful}`)
      if (workers.size === 0) yield* Deferred.fail(lost, new InvalidSetting({ message: "No process is left." }))
      return yield* Effect.never
    }
    yield* Effect.logWarning("A process exited and is being restarted")
    yield* Effect.sleep("1 second")
    yield* once
  })
  const failed = Deferred.fail(listening, new InvalidSetting({ message: "A process exited before it was serving." }))
  yield* Effect.forkScoped(Effect.andThen(once, Effect.andThen(failed, Effect.forever(restart))))
  yield* Deferred.await(listening)
})

/** The management port of all processes, which outlives them. */
const managing = (settings: Settings, { workers }: Group) =>
  Option.isNone(settings.management)
    ? Layer.empty
    : managementPort(settings).pipe(
        Layer.provide(
          OfProcesses.layer({
            wanted: settings.processes,
            serving: () => servingOf(workers),
            reloadStarting: () => reloadStarting(workers)
          })
        ),
        Layer.merge(processGauges),
        Layer.provide(Meter.layer)
      )

/**
 * Serves one port with several processes, each of which reads the settings itself. The first starts alone: only it may
 * find the database empty. The database outlives them all. SIGHUP is passed on to each,
 * as is a second signal to stop, which ends the delay before it.
 */
export const serveInProcesses = (
  settings: Settings,
  sighups: Queue.Dequeue<true>,
  lost: Deferred.Deferred<never, InvalidSetting>
) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      yield* openDatabase(settings)
      const group: Group = { workers: new Map(), stopping: false, lost }
      yield* stopSignals((count) => {
        if (count > 1) for (const worker of group.workers.keys()) hastenWorker(worker)
      })
      yield* Layer.build(managing(settings, group))
      yield* Effect.forkScoped(Effect.forever(Effect.map(Queue.take(sighups), () => reloadAll(group.workers))))
      yield* Effect.forEach(
        Array.from({ length: settings.processes }, (_, index) => index + 1),
        (number) => Effect.andThen(keepServing(settings, group), Effect.logInfo(`Process ${number} is serving`)),
        { discard: true }
      )
      // Runs first: the processes stop together, and each is then awaited.
      yield* Effect.addFinalizer(() =>
        Effect.sync(() => {
          group.stopping = true
          for (const worker of group.workers.keys()) worker.process.kill("SIGTERM")
        })
      )
    })
  )
