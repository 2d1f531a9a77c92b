import cluster, { type Worker } from "node:cluster"
import { Deferred, Effect, Layer, Queue } from "effect"
import { openDatabase } from "../wiring/Persistence.ts"
import { InvalidSetting, secretsOf, type Settings } from "../wiring/Settings.ts"

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

/** The running processes. One that is starting may have read the keyring before the last SIGHUP. */
type Workers = Map<Worker, "starting" | "starting, to reload" | "serving">

const reloadAll = (workers: Workers) =>
  workers.forEach((state, worker) => {
    if (state === "serving") worker.process.kill("SIGHUP")
    else workers.set(worker, "starting, to reload")
  })

/** Runs one process, restarting it whenever it exits; completes once it listens. */
const keepServing = Effect.fnUntraced(function* (settings: Settings, workers: Workers) {
  const listening = yield* Deferred.make<true, InvalidSetting>()
  const once = Effect.scoped(
    Effect.gen(function* () {
      const worker = yield* Effect.acquireRelease(
        Effect.sync(() => cluster.fork(secretsOf(settings))),
        stop
      )
      workers.set(worker, "starting")
      worker.once("listening", () => {
        if (workers.get(worker) === "starting, to reload") worker.process.kill("SIGHUP")
        workers.set(worker, "serving")
        Deferred.doneUnsafe(listening, Effect.succeed(true))
      })
      yield* exited(worker)
      workers.delete(worker)
    })
  )
  const beforeRestart = Effect.andThen(
    Effect.logWarning("A process exited and is being restarted"),
    Effect.sleep("1 second")
  )
  const failed = Deferred.fail(listening, new InvalidSetting({ message: "A process exited before it was serving." }))
  yield* Effect.forkScoped(
    Effect.andThen(once, Effect.andThen(failed, Effect.forever(Effect.andThen(beforeRestart, once))))
  )
  yield* Deferred.await(listening)
})

/**
 * Serves one port with several processes, each of which reads the settings itself. The first starts alone: only it may
 * find the database empty. The database outlives them all. SIGHUP is passed on to each.
 */
export const serveInProcesses = (settings: Settings, sighups: Queue.Dequeue<true>) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      yield* openDatabase(settings)
      const workers: Workers = new Map()
      yield* Effect.forkScoped(Effect.forever(Effect.map(Queue.take(sighups), () => reloadAll(workers))))
      yield* Effect.forEach(
        Array.from({ length: settings.processes }, (_, index) => index + 1),
        (number) => Effect.andThen(keepServing(settings, workers), Effect.logInfo(`Process ${number} is serving`)),
        { discard: true }
      )
    })
  )
