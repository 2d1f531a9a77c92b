import { Cause, Effect, Exit } from "effect"
import type { Memory } from "../support/memory/Memory.ts"
import { broken, isAway, isUnsealed, type Moment } from "./Broken.ts"
import type { Deed, DeedOf } from "./History.ts"
import type { Act, Instance, Services, Shared } from "./Instance.ts"
import { HealthReference } from "./Reference.ts"
import type { Random, Simulation } from "./Simulation.ts"
import type { StoreLog } from "./StoreLog.ts"

/** How each of some deeds is done, with the laws that hold of it. */
export type Deeds<Name extends Deed["do"]> = {
  readonly [One in Name]: (deed: DeedOf<One>, act: Act, instance: Instance) => Effect.Effect<unknown>
}

export interface Counts {
  steps: number
  tasks: number
  faults: number
  acts: number
  plans: number
  leases: number
  attempts: number
}

/** What the laws of one history go by. */
export class Scene {
  readonly simulation: Simulation
  readonly random: Random
  readonly memory: Memory["Service"]
  readonly stores: Shared["stores"]
  readonly counts: Counts
  readonly health = new HealthReference()
  readonly log: StoreLog
  /** When API keys were revoked. */
  readonly revoked = new Map<string, Moment>()
  instances: ReadonlyArray<Instance> = []
  shared!: Shared

  constructor(given: Pick<Scene, "counts" | "log" | "memory" | "random" | "simulation" | "stores">) {
    this.simulation = given.simulation
    this.random = given.random
    this.memory = given.memory
    this.stores = given.stores
    this.counts = given.counts
    this.log = given.log
  }

  get now(): Moment {
    const { now: at, ran } = this.simulation
    return { n: this.log.n, at, ran }
  }

  /** Asks an instance, and lets nothing fail that has met no fault. Answers that a dying instance gives reach nobody. */
  ask<A, E>(
    instance: Instance,
    act: Act,
    asked: Effect.Effect<A, E, Services>,
    onExit: (exit: Exit.Exit<A, E>, from: Moment) => void = () => {}
  ): Effect.Effect<void> {
    return Effect.suspend(() => {
      const from = this.now
      const { life } = instance
      return Effect.map(Effect.exit(instance.ask(act, asked)), (exit) => {
        if (instance.life !== life || !instance.isAlive) return
        if (Exit.isFailure(exit)) {
          const { cause } = exit
          if (Cause.hasInterrupts(cause)) return
          const hasMet = act.hasMet || instance.faultAt >= from.at - 5000
          const isExpected = isAway(cause) ? hasMet : Cause.hasFails(cause)
          if (!isExpected && !(this.log.altered.size > 0 && isUnsealed(cause))) {
            broken(`act ${act.n} fails although nothing is wrong: ${String(Cause.squash(cause))}`)
          }
        }
        onExit(exit, from)
      })
    })
  }
}
