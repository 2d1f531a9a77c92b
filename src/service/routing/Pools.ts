import { Clock, Context, Duration, Effect, Fiber, Layer, Option } from "effect"
import type { ServiceUnavailable } from "../../domain/Errors.ts"
import type { CredentialId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import { type Cooldown, type Cooldowns, longestPause, pauseCauseOf, unknown } from "../../domain/routing/Health.ts"
import { type Pool, type PooledCredential, poolOf } from "../../domain/routing/Pool.ts"
import { Cipher, type PreparedKey } from "../../port/Cipher.ts"
import { CredentialPools, type PoolOwner, type PoolRow, type StoredParking } from "../../port/CredentialPools.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { timeLeft, withDeadline } from "../../port/Deadline.ts"
import { monotonicMillis } from "./makeHealthLedger.ts"
import { type VerifyRow, verifyRow } from "./verifyRow.ts"

/** A pool as the database had it, verified. Times are in milliseconds of the monotonic clock. */
export interface Snapshot {
  readonly version: string
  readonly pool: Pool
  /** The credentials of the pool by their ids. */
  readonly byId: ReadonlyMap<CredentialId, PooledCredential>
  /** What opens the keys of the verified rows. */
  readonly prepared: ReadonlyMap<CredentialId, PreparedKey>
  /** About how many bytes it takes. */
  readonly weight: number
  /** Whether every row is what was sealed. */
  readonly isVerified: boolean
  /** When reading it began, and when it was verified. */
  readonly read_at: number
  readonly verified_at: number
  /** When a question began that the database answered with this version. */
  validated_at: number
}

/** How many pools are kept, and of what weight together. The least recently used ones go. */
const maxPools = 10_000
const maxWeight = 64 * 1024 * 1024

/** How long a snapshot is kept in which a row is not verified: its key may arrive, or the key store answer again. */
const unverifiedFor = 1000

/** A key store that hangs delays verifying, so that counts from its end. */
const isKept = ({ isVerified, verified_at }: Snapshot, now: number): boolean =>
  isVerified || verified_at + unverifiedFor > now

/** How long a plan outside of a request waits for a pool, in milliseconds. */
const longestWait = 30_000

const deadlinePassed = new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined })

/** How many pools of one plan are read at a time. */
const concurrency = 8

/** Reading a pool that several plans wait for. */
interface Loading {
  readonly began: number
  readonly fiber: Fiber.Fiber<Option.Option<Snapshot>, ServiceUnavailable>
}

const nameOf = ({ account_id, workspace_id }: PoolOwner, provider: Provider) =>
  `${account_id} ${workspace_id} ${provider}`

/** How many rows are verified at a time, for key stores that are remote. */
const verifiedAtOnce = 16

/** How long verifying a pool may take. Rows that are not verified by then count as unavailable. */
const inTime = withDeadline(Duration.seconds(3))

/** About how many bytes a row takes in memory: what its size depends on, and the rest of it. */
const weightOf = ({ credential, sealed }: PoolRow): number =>
  [credential.allowed_api_key_hashes, credential.allowed_models, credential.allowed_user_ids]
    .flatMap((list) => list ?? [])
    .reduce((sum, element) => sum + 2 * element.length + 64, sealed.sealed.length + 2048)

/** Nobody waits for a pool beyond the deadline of the own request. Others may still wait for it. */
const withinDeadline = <A, E>(wait: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.flatMap(timeLeft(longestWait), (duration) =>
    Effect.timeoutOrElse(wait, { duration, orElse: () => Effect.die(deadlinePassed) })
  )

/** The cooldowns of a key as the database has them, read at a monotonic time. Those of replaced keys are void. */
const cooldownsOf = (parkings: ReadonlyArray<StoredParking>, key_version: number, now: number): Cooldowns =>
  new Map(
    parkings
      .filter((parking) => parking.cause !== "leaked" && parking.key_version === key_version)
      .map(({ cause, epoch, model, remaining, strikes }): [string, Cooldown] =>
        cause === "succeeded" || remaining === null
          ? [model, { ...unknown(key_version), epoch }]
          : [
              model,
              {
                key_version,
                epoch,
                until: now + Math.min(remaining, longestPause),
                strikes,
                cause: pauseCauseOf(cause)
              }
            ]
      )
  )

const make = Effect.fnUntraced(function* (verify: VerifyRow) {
  const { load, versions } = yield* CredentialPools
  const clock = yield* Clock.Clock
  const fork = Effect.runForkWith(yield* Effect.context())
  const snapshots = new Map<string, Snapshot>()
  const loadings = new Map<string, Loading>()

  /** The weights of all snapshots together. */
  let weight = 0

  const drop = (name: string) => {
    weight -= snapshots.get(name)?.weight ?? 0
    snapshots.delete(name)
  }
  const keep = (name: string, snapshot: Snapshot) => {
    drop(name)
    snapshots.set(name, snapshot)
    weight += snapshot.weight
    for (const oldest of snapshots.keys()) {
      if (oldest === name || (snapshots.size <= maxPools && weight <= maxWeight)) return
      drop(oldest)
    }
  }

  const verified = ({ account_id }: PoolOwner, row: PoolRow) =>
    Effect.map(verify(account_id, row), (found) => ({ ...row, ...found }))

  const read = (owner: PoolOwner, provider: Provider, read_at: number) =>
    Effect.flatMap(
      load(owner, provider),
      Option.match({
        onNone: () => Effect.succeedNone,
        onSome: ({ rows, version }) => {
          const now = monotonicMillis(clock)
          return Effect.map(
            inTime(Effect.forEach(rows, (row) => verified(owner, row), { concurrency: verifiedAtOnce })),
            (found) => {
              const pool = poolOf(
                found.map(({ credential, key_version, parkings, row, seal }) => ({
                  credential,
                  key_version,
                  leaked: parkings.some((parking) => parking.cause === "leaked" && parking.key_version === key_version),
                  row,
                  seal,
                  stored: cooldownsOf(parkings, key_version, now)
                }))
              )
              return Option.some<Snapshot>({
                version,
                pool,
                byId: new Map(pool.map((pooled) => [pooled.credential.id, pooled])),
                prepared: new Map(
                  found.flatMap(({ credential, prepared }) =>
                    prepared === undefined ? [] : [[credential.id, prepared] as const]
                  )
                ),
                weight: found.reduce((sum, row) => sum + weightOf(row), 0),
                isVerified: pool.every(({ seal }) => seal === "verified" || seal === "unverified"),
                read_at,
                verified_at: performance.now(),
                validated_at: read_at
              })
            }
          )
        }
      })
    )

  const start = (owner: PoolOwner, provider: Provider, name: string): Loading => {
    const began = performance.now()
    // Whoever waits for it may leave.
    const fiber = fork(read(owner, provider, began))
    const loading = { began, fiber }
    loadings.set(name, loading)
    fiber.addObserver((exit) => {
      loadings.delete(name)
      if (exit._tag === "Success" && Option.isSome(exit.value)) keep(name, exit.value.value)
      else drop(name)
    })
    return loading
  }

  /** A snapshot that was read since a question began, or is of the version that answered it. */
  const known = (name: string, asked: number, version: string): Snapshot | undefined => {
    const snapshot = snapshots.get(name)
    if (snapshot === undefined || (snapshot.read_at < asked && snapshot.version !== version)) return undefined
    return isKept(snapshot, asked) ? snapshot : undefined
  }

  const loaded = (
    owner: PoolOwner,
    provider: Provider,
    name: string,
    asked: number,
    version: string
  ): Effect.Effect<Option.Option<Snapshot>, ServiceUnavailable> =>
    Effect.suspend(() => {
      const snapshot = known(name, asked, version)
      if (snapshot !== undefined) return Effect.succeedSome(snapshot)
      const running = loadings.get(name) ?? start(owner, provider, name)
      return running.began >= asked
        ? withinDeadline(Fiber.join(running.fiber))
        : // It may have read what was before the question. One at a time: what it reads may yet be of the right version.
          Effect.andThen(withinDeadline(Fiber.await(running.fiber)), loaded(owner, provider, name, asked, version))
    })

  const isFresh = (snapshot: Snapshot | undefined, now: number, freshness: number): snapshot is Snapshot =>
    snapshot !== undefined && snapshot.validated_at + freshness >= now && isKept(snapshot, now)

  const validated = (
    owner: PoolOwner,
    providers: ReadonlyArray<Provider>,
    names: ReadonlyArray<string>,
    asked: number
  ): Effect.Effect<Option.Option<ReadonlyArray<Snapshot>>, ServiceUnavailable> =>
    Effect.flatMap(versions(owner, providers), (answer) => {
      if (Option.isNone(answer)) return Effect.succeedNone
      const current = Array<Snapshot>(names.length)
      const missing: Array<readonly [index: number, provider: Provider]> = []
      for (const [index, provider] of providers.entries()) {
        const name = names[index] ?? ""
        const snapshot = known(name, asked, answer.value[index] ?? "")
        if (snapshot === undefined) {
          missing.push([index, provider])
          continue
        }
        keep(name, snapshot)
        snapshot.validated_at = Math.max(snapshot.validated_at, asked)
        current[index] = snapshot
      }
      if (missing.length === 0) return Effect.succeedSome(current)
      const load = ([index, provider]: (typeof missing)[number]) =>
        Effect.map(loaded(owner, provider, names[index] ?? "", asked, answer.value[index] ?? ""), (found) => {
          if (Option.isSome(found)) current[index] = found.value
          return Option.isSome(found)
        })
      return Effect.map(Effect.forEach(missing, load, { concurrency }), (found) =>
        found.every((is) => is) ? Option.some(current) : Option.none()
      )
    })

  return Pools.of({
    current: (owner, providers, freshness = 0) =>
      Effect.suspend(() => {
        const asked = performance.now()
        const names = providers.map((provider) => nameOf(owner, provider))
        if (freshness > 0) {
          const found = names.map((name) => snapshots.get(name))
          const fresh = found.filter((snapshot) => isFresh(snapshot, asked, freshness))
          if (fresh.length === found.length) return Effect.succeedSome(fresh)
        }
        return validated(owner, providers, names, asked)
      })
  })
})

/** Snapshots of pools, each used only while its version is the database's: there is no time for which they are stale. */
export class Pools extends Context.Service<
  Pools,
  {
    /**
     * The pools of a workspace, one for each provider in their order. Every change that was acknowledged before this
     * began is in them; with a `freshness` in milliseconds, every one that was by that much earlier. None if the account
     * has no such workspace.
     */
    readonly current: (
      owner: PoolOwner,
      providers: ReadonlyArray<Provider>,
      freshness?: number
    ) => Effect.Effect<Option.Option<ReadonlyArray<Snapshot>>, ServiceUnavailable>
  }
>()("byok/Pools") {
  static readonly layer = Layer.effect(
    this,
    Effect.flatMap(Cipher, ({ prepare }) => make(verifyRow(prepare)))
  )
  /** Goes by the columns, without a key to verify them. For explanations only. */
  static readonly layerUnverified = Layer.effect(
    this,
    make(() => Effect.succeed({ seal: "unverified" }))
  )
}
