import { createHmac } from "node:crypto"
import { Clock, Context, Duration, Effect, Exit, Fiber, Layer, Redacted, Result, Scope } from "effect"
import { SecureRandom } from "effect/crypto"
import type { CredentialId, CredentialReference } from "../../src/domain/Identifiers.ts"
import type { Link } from "../../src/domain/Link.ts"
import type { SealedKey, SealingContext } from "../../src/domain/SealedKey.ts"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { AccountRepository, WorkspaceResolver } from "../../src/port/AccountRepository.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { AuthenticationFailed, Cipher, UnknownKeyId } from "../../src/port/Cipher.ts"
import { CredentialPools, type PoolOwner, type StoredParking } from "../../src/port/CredentialPools.ts"
import { CredentialRepository, PoolLimits } from "../../src/port/CredentialRepository.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { CredentialUse, type UsedCredential } from "../../src/port/CredentialUse.ts"
import { type Answer, DatabaseFailure } from "../../src/port/DatabaseFailure.ts"
import { RequestTimeout, timeLeft } from "../../src/runtime/Deadline.ts"
import { IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { LinkKeys, LinkRepository, PublicUrl } from "../../src/port/Links.ts"
import { LeakedKeys } from "../../src/port/LeakedKeys.ts"
import { makeMemoryBudget, MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { type ParkingChange, Parkings } from "../../src/port/Parkings.ts"
import * as CredentialsLive from "../../src/service/credentials/Credentials.ts"
import type { Outcome } from "../../src/domain/routing/Outcome.ts"
import type { Past } from "../../src/domain/routing/Past.ts"
import { Links } from "../../src/service/links/Links.ts"
import { AttemptMac } from "../../src/port/AttemptMac.ts"
import { Attempts } from "../../src/service/routing/Attempts.ts"
import type { AttemptedKey, AttemptOptions, NextAttempt } from "../../src/service/routing/NextAttempt.ts"
import { Router } from "../../src/service/routing/Router.ts"
import type { RouterRequest } from "../../src/service/routing/RouterRequest.ts"
import { TokensOnly } from "../../src/service/tokens/Tokens.ts"
import { Memory } from "../support/memory/Memory.ts"
import type { Fault } from "./History.ts"
import { type Random, type Simulation } from "./Simulation.ts"

/** What somebody has asked for, and what it has met. */
export interface Act {
  readonly n: number
  readonly faults: Map<number, Fault>
  statements: number
  /** Whether a statement of it has failed or waited for long. */
  hasMet: boolean
  /** The idempotency key of a create, with its account. */
  idem?: string
  /** The link by whose owner it is. */
  link?: Link
}

const CurrentAct = Context.Reference<Act | undefined>("byok/test/world/CurrentAct", {
  defaultValue: () => undefined
})

type Stores =
  | AccountRepository
  | ApiKeys
  | CredentialPools
  | CredentialRepository
  | CredentialUse
  | IdempotencyRecords
  | LeakedKeys
  | LinkRepository
  | Parkings
  | WorkspaceResolver

/** What all instances share. */
export interface Shared {
  readonly simulation: Simulation
  readonly random: Random
  readonly stores: Context.Context<Stores | Memory>
  /** Rows that somebody else has locked, and until when. */
  readonly lockedUntil: Map<string, number>
  /** How many statements are on their way. */
  statements: number
  /** How many keys were sealed. */
  seals: number
  background: number
  readonly linkKeys: LinkKeys["Service"]
  /** Told while an instance looks for an attempt. */
  readonly finding: <E, R>(
    instance: Instance,
    request: RouterRequest,
    past: Past,
    options: AttemptOptions,
    found: Effect.Effect<NextAttempt, E, R>
  ) => Effect.Effect<NextAttempt, E, R>
  /** Told of each report just before it counts, with the time of the upstream's answer. */
  readonly reported: (instance: Instance, attempt: AttemptedKey, outcome: Outcome, at: number) => void
  /** Told before and after a statement is carried out, whoever gets the answer. */
  readonly carriedOut: <A, E>(name: string, act: Act | undefined, statement: Effect.Effect<A, E>) => Effect.Effect<A, E>
}

/** A pool as an instance was told of it, and when. */
export interface Told {
  readonly pool: string
  readonly version: string
  readonly health: string
  readonly at: number
  readonly parkings: ReadonlyMap<CredentialId, ReadonlyArray<StoredParking>>
}

export type Services = Attempts | Credentials | Links | Router

/** How far an instance's idea of the database's time may be off, in milliseconds: half of what one statement takes. */
export const clockError = 150

/** The most credentials of one provider. */
export const mostMembers = 5

export const poolNameOf = ({ workspace_id }: Pick<PoolOwner, "workspace_id">, provider: string) =>
  `${workspace_id} ${provider}`

const away = (sqlstate: string, kind = "ConnectionError") =>
  Exit.fail(new DatabaseFailure({ kind, sqlstate, constraint: undefined }))

/** A broken connection; no disk or connections left; another state or a lock of an object; a fault of the server. */
const refusals = ["08006", "53100", "53300", "55000", "55P03", "XX000"]

const bytesOf = (text: string) => new Uint8Array(Buffer.from(text))
export const textOf = (bytes: Uint8Array) => Buffer.from(bytes).toString()

/** Seals by writing the context down: what sealing itself withstands is tested elsewhere. */
const sealedAs = (n: number, key: string, context: SealingContext): SealedKey => ({
  kek_id: "kek-2",
  wrapped_dek: bytesOf(`${n} ${context}`),
  sealed: bytesOf(key)
})

export const isSealedFor = ({ wrapped_dek }: SealedKey, context: SealingContext) =>
  textOf(wrapped_dek).replace(/^\d+ /, "") === context

const mac: AttemptMac["Service"] = {
  kekId: () => "kek-2",
  macOf: (kek_id, bytes) => createHmac("sha256", kek_id).update(bytes).digest().subarray(0, 16)
}

/** One process: its services, over stores that all share and that fail as the seed has it. */
export class Instance {
  readonly #shared: Shared
  readonly clock: Clock.Clock
  readonly skew: number
  readonly #seed: number
  isAlive = false
  /** Its connections are refused until then. */
  cutUntil = 0
  /** While its keyring is another one. */
  otherKeyring: { readonly since: number; readonly until: number } | undefined
  /** When a fault was last met. */
  faultAt = Number.NEGATIVE_INFINITY
  unopenedAt = Number.NEGATIVE_INFINITY
  told: Array<Told> = []
  /** The lives that ended in peace, so that nothing of them is lost but of rows that were locked then. */
  readonly endedWell = new Map<number, ReadonlySet<string>>()
  /** How often it has begun. */
  life = 0
  budget = makeMemoryBudget(1)
  services: Context.Context<Services> | undefined
  #scope: Scope.Closeable | undefined
  #isRestarting = false
  readonly #asking = new Set<Fiber.Fiber<unknown, unknown>>()

  constructor(shared: Shared, skew: number, seed: number) {
    this.#shared = shared
    this.clock = shared.simulation.clock(skew)
    this.skew = skew
    this.#seed = seed
  }

  get now() {
    return this.#shared.simulation.now
  }

  /** How a statement waits for its turn or its answer, if it does. */
  #pause(): Effect.Effect<void> | undefined {
    const { random } = this.#shared
    const n = random.below(20)
    if (n < 8) return undefined
    if (n < 16) return Effect.yieldNow
    return Effect.sleep(n < 19 ? 1 + random.below(5) : random.below(60))
  }

  #met(...acts: ReadonlyArray<Act | undefined>) {
    this.faultAt = this.now
    for (const act of acts) if (act !== undefined) act.hasMet = true
  }

  /** Waits for a lock: until it is free, or as long as a statement may take. */
  #waits(acts: ReadonlyArray<Act | undefined>, millis: number) {
    this.#met(...acts)
    return Effect.flatMap(timeLeft(3000), (left) =>
      millis < left ? Effect.sleep(millis) : Effect.andThen(Effect.sleep(left), away("57014", "StatementTimeoutError"))
    )
  }

  /** Counts a statement while it is on its way, if that begins at all. */
  #onItsWay<A, E>(statement: () => Effect.Effect<A, E>) {
    const shared = this.#shared
    let begun = 0
    const counted = Effect.suspend(() => {
      begun = 1
      shared.statements += 1
      return statement()
    })
    return Effect.onExit(counted, () => {
      shared.statements -= begun
      return Effect.void
    })
  }

  #statement<A, E>(
    name: string,
    rows: ReadonlyArray<string>,
    statement: Effect.Effect<A, E>
  ): Effect.Effect<A, E | DatabaseFailure | ServiceUnavailable> {
    const { carriedOut, simulation } = this.#shared
    return Effect.withFiber((fiber) => {
      const act = fiber.getRef(CurrentAct)
      const made = Effect.provideService(carriedOut(name, act, statement), Clock.Clock, simulation.wall)
      return this.#sent(name, rows, [act], made)
    })
  }

  /** A statement that was not carried out: by the code, its connection broke, or the database refused it for a while. */
  #refused() {
    const code = refusals[Math.floor(this.now) % refusals.length] ?? "08006"
    return away(code, code.startsWith("08") ? "ConnectionError" : "UnknownError")
  }

  /** Sends a statement of one act or of several, and meets what befalls any of them. */
  #sent<A, E>(
    name: string,
    rows: ReadonlyArray<string>,
    acts: ReadonlyArray<Act | undefined>,
    made: Effect.Effect<A, E>
  ): Effect.Effect<A, E | DatabaseFailure | ServiceUnavailable> {
    const { background, lockedUntil, random } = this.#shared
    return Effect.suspend(() => {
      const drawn: ReadonlyArray<Fault> = ["lost before", "lost after", "late", "locked", "busy"]
      let fault: Fault | undefined
      for (const act of acts) {
        const isHit = act === undefined && background > 0 && random.once(background)
        fault ??= act === undefined ? (isHit ? random.pick(drawn) : undefined) : act.faults.get(act.statements)
        if (act !== undefined) act.statements += 1
      }
      const isWrite = /insert|update|delete|reorder|store|conclude|clear/.test(name)
      const carried = (): Effect.Effect<A, E | DatabaseFailure | ServiceUnavailable> => {
        if (fault === undefined) return made
        this.#met(...acts)
        switch (fault) {
          case "lost before":
            return this.#refused()
          case "busy":
            return Effect.fail(new ServiceUnavailable())
          case "lost after":
            return Effect.andThen(made, away("08006"))
          case "locked":
            return Effect.andThen(this.#waits(acts, random.pick([100, 2500, 4000])), made)
          case "late": {
            if (!isWrite) return away("08006")
            const late = Effect.ignore(Effect.andThen(Effect.sleep(random.pick([1, 50, 900])), made))
            return Effect.andThen(Effect.forkDetach(this.#onItsWay(() => late)), away("08006"))
          }
        }
      }
      const answered = Effect.flatMap(Effect.uninterruptible(Effect.suspend(carried)), (answer) => {
        const pause = this.#pause()
        return pause === undefined ? Effect.succeed(answer) : Effect.as(pause, answer)
      })
      const arrived = () => {
        if (!this.isAlive || this.now < this.cutUntil) {
          this.#met(...acts)
          return away("ECONNREFUSED")
        }
        const until = isWrite && rows.length > 0 ? Math.max(...rows.map((row) => lockedUntil.get(row) ?? 0)) : 0
        return this.now < until ? Effect.andThen(this.#waits(acts, until - this.now), answered) : answered
      }
      return this.#onItsWay(() => {
        const pause = this.#pause()
        return pause === undefined ? arrived() : Effect.andThen(pause, Effect.suspend(arrived))
      })
    })
  }

  /** Stores what nobody else has locked, and answers with the rest. */
  #storeFree<Change extends CredentialReference>(
    { store }: { readonly store: (changes: ReadonlyArray<Change>) => Answer<ReadonlyArray<Change>> },
    changes: ReadonlyArray<Change>
  ) {
    return Effect.suspend(() => {
      const { lockedUntil } = this.#shared
      const isLocked = ({ credential_id }: Change) => this.now < (lockedUntil.get(credential_id) ?? 0)
      const free = changes.filter((change) => !isLocked(change))
      const locked = changes.filter((change) => !free.includes(change))
      return Effect.map(this.#statement("store", [], store(free)), (met) => [...met, ...locked])
    })
  }

  /** A port whose statements fail as the seed has it. */
  #through<I, S extends object>(port: Context.Key<I, S>): Context.Context<I> {
    const service: S = Context.getUnsafe(this.#shared.stores, port)
    const through = new Proxy(service, {
      get: (target, name) => {
        const member: unknown = Reflect.get(target, name)
        if (name === "store" && port.key === Parkings.key)
          return (changes: ReadonlyArray<ParkingChange>) => this.#storeFree(service as Parkings["Service"], changes)
        if (name === "store" && port.key === CredentialUse.key)
          return (uses: ReadonlyArray<UsedCredential>) => this.#storeFree(service as CredentialUse["Service"], uses)
        const ask = (statement: unknown, ...given: ReadonlyArray<unknown>) => {
          const isFree = this.#shared.lockedUntil.size === 0
          const rows = (isFree ? [] : given).flatMap((one) => JSON.stringify(one)?.match(/[0-9a-f-]{36}/g) ?? [])
          return this.#statement(String(name), rows, statement as Effect.Effect<unknown>)
        }
        return typeof member === "function"
          ? (...given: ReadonlyArray<unknown>) => ask(Reflect.apply(member, target, given), ...given)
          : ask(member)
      }
    })
    return Context.make(port, through)
  }

  /** Notes how long the first answer took that told the database's time. */
  #timed<A, E>(time: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Effect.suspend(() => {
      const [asked, { life }] = [this.now, this]
      return Effect.tap(time, () =>
        Effect.sync(() => {
          if (life === this.life && this.toldTimeWithin === Infinity) this.toldTimeWithin = this.now - asked
        })
      )
    })
  }

  /** What an instance was told of pools, which its plans go by. */
  #pools(): Context.Context<CredentialPools> {
    const pools = Context.get(this.#through(CredentialPools), CredentialPools)
    return Context.make(CredentialPools, {
      ...pools,
      time: this.#timed(pools.time),
      versions: pools.versions,
      versionsOfKey: pools.versionsOfKey,
      load: (owner, provider, known, admit) =>
        Effect.tap(pools.load(owner, provider, known, admit), (found) =>
          Effect.sync(() => {
            if (found._tag === "None") return
            const { health, parkings, version } = found.value
            this.told.push({ pool: poolNameOf(owner, provider), version, health, parkings, at: this.now })
          })
        )
    })
  }

  get #cipher(): Cipher["Service"] {
    const verify: Cipher["Service"]["verify"] = (sealed, context) => {
      if (this.otherKeyring !== undefined && this.now < this.otherKeyring.until) {
        this.faultAt = this.unopenedAt = this.now
        return Result.fail(new UnknownKeyId(sealed))
      }
      return isSealedFor(sealed, context) ? Result.void : Result.fail(new AuthenticationFailed())
    }
    return {
      verify,
      seal: (key, context) =>
        Effect.sync(() => sealedAs((this.#shared.seals += 1), Redacted.value(key) as string, context)),
      read: (sealed, context, use) => Result.map(verify(sealed, context), () => use(Buffer.from(sealed.sealed)))
    }
  }

  /** Within how many milliseconds the database first told it its time; until then it goes by its own clock. */
  toldTimeWithin = Number.POSITIVE_INFINITY

  get isSynchronized() {
    return this.toldTimeWithin <= 2 * clockError
  }

  /** Tells of each attempt and report. */
  #observed(router: Router["Service"]): Router["Service"] {
    return {
      ...router,
      nextAttempt: (request, past, options = {}) =>
        this.#shared.finding(this, request, past, options, router.nextAttempt(request, past, options)),
      report: (attempt, outcome, answered_at) =>
        Effect.sync(() => {
          if (!this.isAlive) return
          const ago = answered_at === undefined ? 0 : Math.max(0, router.timeAt() - answered_at)
          this.#shared.reported(this, attempt, outcome, this.now - ago)
          Effect.runSync(router.report(attempt, outcome, answered_at))
        })
    }
  }

  /** Begins with nothing in memory. */
  readonly start: Effect.Effect<void> = Effect.suspend(() => {
    this.isAlive = true
    this.life += 1
    this.told = []
    this.toldTimeWithin = Number.POSITIVE_INFINITY
    this.budget = makeMemoryBudget(64 * 1024 * 1024)
    const provided = Context.mergeAll(
      this.#through(AccountRepository),
      this.#through(ApiKeys),
      this.#through(CredentialRepository),
      this.#through(CredentialUse),
      this.#through(IdempotencyRecords),
      this.#through(LeakedKeys),
      this.#through(LinkRepository),
      this.#through(Parkings),
      this.#through(WorkspaceResolver),
      this.#pools(),
      Context.make(Cipher, this.#cipher),
      Context.make(LinkKeys, this.#shared.linkKeys),
      Context.make(SecureRandom.SecureRandom, this.#shared.simulation.secureRandom(1000 * this.#seed + this.life)),
      Context.make(AttemptMac, mac),
      Context.make(MemoryBudget, this.budget),
      Context.make(RequestTimeout, Duration.seconds(3)),
      Context.make(PublicUrl, "http://127.0.0.1:3000"),
      Context.make(TokensOnly, false),
      Context.make(PoolLimits, { credentials: mostMembers, bytes: 1 << 24 }),
      Context.make(Clock.Clock, this.clock)
    )
    const scope = Scope.makeUnsafe()
    this.#scope = scope
    const built = Effect.gen({ self: this }, function* () {
      const credentials = yield* CredentialsLive.make
      const context = yield* Layer.build(Router.layer)
      const router = this.#observed(Context.get(context, Router))
      const attempts = yield* Effect.provideService(Attempts.make, Router, router)
      this.services = provided.pipe(
        Context.add(Credentials, credentials),
        Context.add(Links, yield* Links.make),
        Context.add(Router, router),
        Context.add(Attempts, attempts)
      )
    })
    return built.pipe(Scope.provide(scope), Effect.provideContext(provided))
  })

  /** Stops as on SIGTERM; or as if its power went, so that nothing more leaves it. */
  readonly stop = (gently: boolean): Effect.Effect<void> =>
    Effect.suspend(() => {
      this.isAlive = gently
      this.services = undefined
      const began = this.now
      const asking = Array.from(this.#asking)
      const closed = this.#scope === undefined ? Effect.void : Scope.close(this.#scope, Exit.void)
      return Effect.andThen(
        Effect.andThen(Fiber.interruptAll(asking), closed),
        Effect.sync(() => {
          this.isAlive = false
          if (!gently || this.faultAt >= began - 5000) return
          const locked = Array.from(this.#shared.lockedUntil).filter(([, until]) => until > began)
          this.endedWell.set(this.life, new Set(locked.map(([id]) => id)))
        })
      )
    })

  readonly restart = (gently: boolean): Effect.Effect<void> =>
    Effect.uninterruptible(
      Effect.suspend(() => {
        if (this.#isRestarting) return Effect.void
        this.#isRestarting = true
        const done = Effect.sync(() => void (this.#isRestarting = false))
        return Effect.andThen(Effect.andThen(this.stop(gently), this.start), done)
      })
    )

  /** Runs an act as a request to this instance runs. */
  ask<A, E>(act: Act, asked: Effect.Effect<A, E, Services>): Effect.Effect<A, E> {
    return Effect.suspend(() => {
      const { services } = this
      if (services === undefined) return Effect.interrupt
      const request = asked.pipe(Effect.provideService(CurrentAct, act), Effect.provideContext(services))
      const registered = Effect.withFiber<A, E>((fiber) => {
        if (this.services !== services) return Effect.interrupt
        this.#asking.add(fiber)
        fiber.addObserver(() => this.#asking.delete(fiber))
        return request
      })
      return Effect.flatMap(Effect.forkChild(registered), Fiber.join)
    })
  }
}
