import cluster, { type Worker } from "node:cluster"
import { Deferred, Effect, Layer, Queue } from "effect"
import { openDatabase } from "../wiring/Persistence.ts"
import { InvalidSetting, secretsOf, type Settings } from "../wiring/Settings.ts"

const ended = (worker: Worker) =>
  Effect.callback<true>((resume) => {
    if (worker.isDead()) resume(Effect.succeed(true))
    else worker.once("exit", () => resume(Effect.succeed(true)))
  })

const stop = (worker: Worker) =>
  Effect.suspend(() => {
    if (!worker.isDead()) worker.process.kill("SIGTERM")
    return ended(worker)
  })

/** The processes that have not ended. One that does not serve yet may have read the keyring before the last SIGHUP. */
type Crew = Map<Worker, "starting" | "starting, to reload" | "serving">

const reloadAll = (crew: Crew) =>
  crew.forEach((state, worker) => {
    if (state === "serving") worker.process.kill("SIGHUP")
    else crew.set(worker, "starting, to reload")
  })

/** Serves with a process of its own, which is started again whenever it ends; succeeds when it listens. */
const keepServing = Effect.fnUntraced(function* (settings: Settings, crew: Crew) {
  const listening = yield* Deferred.make<true, InvalidSetting>()
  const once = Effect.scoped(
    Effect.gen(function* () {
      const worker = yield* Effect.acquireRelease(
        Effect.sync(() => cluster.fork(secretsOf(settings))),
        stop
      )
      crew.set(worker, "starting")
      worker.once("listening", () => {
        if (crew.get(worker) === "starting, to reload") worker.process.kill("SIGHUP")
        crew.set(worker, "serving")
        Deferred.doneUnsafe(listening, Effect.succeed(true))
      })
      yield* ended(worker)
      crew.delete(worker)
    })
  )
  const again = Effect.andThen(Effect.logWarning("A process has ended and is started again"), Effect.sleep("1 second"))
  const failed = Deferred.fail(listening, new InvalidSetting({ message: "A process has ended before it served." }))
  yield* Effect.forkScoped(Effect.andThen(once, Effect.andThen(failed, Effect.forever(Effect.andThen(again, once)))))
  yield* Deferred.await(listening)
})

/**
 * Serves one port with several processes, which read the settings again. The first starts alone, so that it alone meets
 * an empty database; the database outlives them all. SIGHUP is passed on to each of them.
 */
export const serveInProcesses = (settings: Settings, sighups: Queue.Dequeue<true>) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      yield* openDatabase(settings)
      const crew: Crew = new Map()
      yield* Effect.forkScoped(Effect.forever(Effect.map(Queue.take(sighups), () => reloadAll(crew))))
      yield* Effect.forEach(
        Array.from({ length: settings.processes }, (_, index) => index + 1),
        (number) => Effect.andThen(keepServing(settings, crew), Effect.logInfo(`Process ${number} serves`)),
        { discard: true }
      )
    })
  )
