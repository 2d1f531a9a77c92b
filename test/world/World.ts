import { Cause, Context, DateTime, Effect, Exit, Fiber } from "effect"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { layer as memoryStore, Memory } from "../support/memory/Memory.ts"
import { Attempts } from "./Attempts.ts"
import { broken, takeBroken } from "./Broken.ts"
import { credentialDeeds } from "./Credentials.ts"
import type { Deed, History, Step } from "./History.ts"
import { Instance, type Act, type Shared } from "./Instance.ts"
import { linkDeeds, linkKeys } from "./Links.ts"
import { operatorDeeds } from "./Operators.ts"
import { Plans } from "./Plans.ts"
import { type Counts, type Deeds, Scene } from "./Scene.ts"
import { Random, Simulation } from "./Simulation.ts"
import { StoreLog } from "./StoreLog.ts"
import { tenantAt, tenants } from "./Tenants.ts"

const second = 1000

/** One store for all histories, which each of them empties first. */
const stores = Effect.runSync(
  Effect.provide(Effect.context<Shared["stores"] extends Context.Context<infer Stores> ? Stores : never>(), memoryStore)
)
const memory = Context.get(stores, Memory)
const emptyStores = () => {
  const { events, ...maps } = memory
  events.length = 0
  for (const map of Object.values(maps)) map.clear()
}

/** Runs a history, and checks after every step what must hold. */
export class World {
  readonly history: History
  readonly simulation: Simulation
  readonly counts: Counts = { steps: 0, tasks: 0, faults: 0, acts: 0, plans: 0, leases: 0, attempts: 0 }
  readonly #random: Random

  constructor(history: History) {
    this.history = history
    this.simulation = new Simulation(history.seed)
    this.#random = new Random(history.seed ^ 0x5bd1e995)
  }

  /** Sets the scene: two accounts in one store, and instances over it. */
  readonly #founded = Effect.gen({ self: this }, function* () {
    const { counts, simulation } = this
    const random = this.#random
    emptyStores()
    const { addApiKey, createAccount } = Context.get(stores, AccountRepository)
    const created_at = DateTime.makeUnsafe(0)
    for (const { account_id, apiKeys, hash, workspace_id } of tenants) {
      yield* createAccount(
        { account_id, name: "an account" },
        { workspace_id, name: "default", created_at },
        { hash, name: "first", role: "management", created_at }
      )
      for (const hash of apiKeys) {
        yield* addApiKey(account_id, { hash, name: "ordinary", role: "ordinary", created_at })
      }
    }
    const log: StoreLog = new StoreLog(memory, stores, () => ({ n: log.n, at: simulation.now, ran: simulation.ran }))
    const scene = new Scene({ ...{ simulation, random, counts, memory, stores, log } })
    const plans = new Plans(scene)
    const attempts = new Attempts(scene, plans)
    /** Nothing is swept that an instance still remembers. */
    const sweeps = (parked: typeof memory.parkings) => {
      for (const [name, { credential_id, key_version, model, parked_at = 0 }] of parked) {
        if (memory.parkings.has(name) || memory.credentials.get(credential_id)?.key_version !== key_version) continue
        const remembers = (one: Instance) =>
          scene.health.remembers(one, credential_id, model, key_version, parked_at - 1e6)
        if (scene.instances.some((one) => one.isAlive && remembers(one))) {
          broken("a cooldown was swept that an instance remembers")
        }
      }
    }
    const { background, instances, skews } = this.history
    scene.shared = {
      ...{
        simulation,
        random,
        stores,
        background,
        lockedUntil: new Map(),
        statements: 0,
        seals: 0,
        linkKeys: linkKeys(),
        finding: plans.finding,
        reported: plans.reported
      },
      carriedOut: log.carriedOut(sweeps)
    }
    log.note()
    scene.instances = Array.from({ length: instances }, (_, n) => new Instance(scene.shared, skews[n] ?? 0, n))
    for (const instance of scene.instances) yield* instance.start
    const deeds: Deeds<Deed["do"]> = {
      ...{ ...credentialDeeds(scene), ...linkDeeds(scene), ...operatorDeeds(scene), ...plans.deeds, ...attempts.deeds }
    }
    return { deeds, plans, scene }
  })

  /** Simulates only the first and last seconds of a long time, and jumps over the rest: waits that end there end late. */
  #wait({ instances, shared }: Scene, millis: number) {
    const jumped = millis - 7 * second
    if (jumped < 10 * second) return millis > 0 ? Effect.sleep(millis) : Effect.void
    const jump: Effect.Effect<void> = Effect.suspend(() => {
      if (shared.statements > 0 || this.simulation.isBusy) return Effect.andThen(Effect.sleep(10), jump)
      for (const instance of instances) instance.faultAt = this.simulation.now + jumped
      this.simulation.jump(jumped)
      return Effect.void
    })
    return Effect.andThen(Effect.andThen(Effect.sleep(5 * second), jump), Effect.sleep(2 * second))
  }

  /** Whatever was done, everything comes to rest, and then nothing is held. */
  readonly #settle = Effect.fnUntraced(function* (
    this: World,
    { plans, scene }: { readonly plans: Plans; readonly scene: Scene },
    plan: (n: number, tenant: number) => Effect.Effect<unknown>
  ) {
    const { health, instances, memory, shared } = scene
    shared.background = 0
    for (const instance of instances) {
      instance.otherKeyring = undefined
      instance.cutUntil = 0
    }
    yield* Effect.sleep(5 * second)
    const isLocked = (id: string) => (shared.lockedUntil.get(id) ?? 0) > this.simulation.now - 3 * second
    health.checkStored(memory, isLocked)
    shared.lockedUntil.clear()
    yield* Effect.sleep(7 * second)
    health.checkStored(memory, () => false)
    const hasCredentials = (tenant: number) => scene.log.created.some((one) => one.tenant === tenantAt(tenant))
    const planned = [0, 1].filter(hasCredentials)
    for (const n of instances.keys()) for (const tenant of planned) yield* plan(n, tenant)
    for (const instance of instances) {
      yield* instance.stop(true)
      const { held } = instance.budget
      if (Object.values(held).some((bytes) => bytes !== 0)) {
        broken(`a stopped instance holds ${JSON.stringify(held)}`)
      }
    }
    plans.checkEnded()
  })

  readonly #play = Effect.gen({ self: this }, function* () {
    const founded = yield* this.#founded
    const { deeds, scene } = founded
    let acts = 0
    const carryOut = ({ deed, faults, instance: n }: Pick<Step, "deed" | "faults" | "instance">) => {
      const act: Act = { n: (acts += 1), faults: new Map(faults), statements: 0, hasMet: false }
      this.counts.acts += 1
      this.counts.faults += faults.length
      return deeds[deed.do](deed as never, act, scene.instances[n] as Instance)
    }
    const running: Array<Fiber.Fiber<unknown>> = []
    let failed: Error | undefined
    const joined = Effect.suspend(() => Effect.forEach(running.splice(0), Fiber.await, { discard: true }))
    const checked = Effect.suspend(() => {
      return failed === undefined ? Effect.void : Effect.die(failed)
    })
    for (const step of this.history.steps) {
      if (step.joins) yield* joined
      yield* this.#wait(scene, step.wait)
      this.counts.steps += 1
      const fiber = yield* Effect.forkDetach(Effect.suspend(() => carryOut(step)))
      fiber.addObserver((exit) => {
        const isDefect = Exit.isFailure(exit) && !Cause.hasInterrupts(exit.cause)
        if (isDefect) failed ??= new Error(Cause.pretty(exit.cause))
      })
      running.push(fiber)
      if (step.leaves) {
        const soon = this.#random.once(2) ? Effect.yieldNow : Effect.sleep(this.#random.below(40))
        yield* Effect.forkDetach(
          Effect.andThen(
            soon,
            Effect.suspend(() => Fiber.interrupt(fiber))
          )
        )
      }
      yield* checked
    }
    yield* joined
    yield* checked
    const plan = (instance: number, tenant: number) =>
      carryOut({
        deed: { do: "plan", first: 0, freshness: 0, model: 0, apiKey: null, tenant },
        ...{ instance, faults: [] }
      })
    yield* this.#settle(founded, plan)
  })

  /** What is wrong, if anything. */
  run(stackTraceLimit = 0): string | undefined {
    takeBroken()
    const exit = this.simulation.run(this.#play, stackTraceLimit)
    this.counts.tasks = this.simulation.ran
    const law = takeBroken() ?? (Exit.isFailure(exit) ? Cause.pretty(exit.cause) : undefined)
    if (law !== undefined) return law
    const { fibers, timers } = this.simulation
    return fibers > 0 || timers > 0 ? `${fibers} fibers and ${timers} timers are left` : undefined
  }
}
