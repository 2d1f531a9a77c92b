import { Clock, Context, Duration, Effect, Fiber, Layer, Option } from "effect"
import type { ServiceUnavailable } from "../../domain/Errors.ts"
import type { CredentialId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import { type Cooldown, longestPause, pauseCauseOf, unknown } from "../../domain/routing/Health.ts"
import { monotonicMillis } from "../../domain/routing/Moment.ts"
import { type PooledCredential, poolOf, type Seal } from "../../domain/routing/Pool.ts"
import { Cipher, type OpenFailure, type PreparedKey } from "../../port/Cipher.ts"
import { CredentialPools, type PoolOwner, type PoolRow, type StoredParking } from "../../port/CredentialPools.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { timeLeft, withDeadline } from "../../port/Deadline.ts"
import { UnknownWorkspace } from "./RouterErrors.ts"

/** The seal of a row whose key does not open, by the error. */
export const sealStatusByError = {
  AuthenticationFailed: "altered",
  UnknownKeyId: "unknown_key",
  UnsupportedFormat: "unsupported",
  KeyStoreUnavailable: "unavailable"
} as const satisfies Record<OpenFailure["_tag"], Seal>

/** Whether a row is what was sealed and, if it is, what opens its key. */
interface Verified {
  readonly seal: Seal
  readonly prepared?: PreparedKey
}

/** A pool as the database had it, verified. Times are in milliseconds of the monotonic clock. */
export interface Snapshot {
  readonly version: string
  readonly pool: ReadonlyArray<PooledCredential & Verified>
  /** The credentials of the pool by their ids. */
  readonly byId: ReadonlyMap<CredentialId, PooledCredential & Verified>
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
  readonly fiber: Fiber.Fiber<Snapshot, ServiceUnavailable | UnknownWorkspace>
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

/** A stored cooldown, read at a monotonic time. */
const cooldownOf = ({ cause, epoch, key_version, remaining, strikes }: StoredParking, now: number): Cooldown =>
  cause === "succeeded" || cause === "leaked" || remaining === null
    ? { ...unknown(key_version), epoch }
    : { key_version, epoch, until: now + Math.min(remaining, longestPause), strikes, cause: pauseCauseOf(cause) }

/** A row with what is known of its current key; parkings of replaced keys are void. */
const pooledOf = ({ credential, key_version, parkings, row }: PoolRow, verified: Verified, now: number) => {
  const current = parkings.filter((parking) => parking.key_version === key_version)
  const cooldowns = current.filter(({ cause }) => cause !== "leaked")
  return {
    ...verified,
    credential,
    key_version,
    row,
    leaked: cooldowns.length < current.length,
    stored: new Map(cooldowns.map((parking) => [parking.model, cooldownOf(parking, now)]))
  }
}

const orUnknown = <A, E>(found: Effect.Effect<Option.Option<A>, E>): Effect.Effect<A, E | UnknownWorkspace> =>
  Effect.flatMap(found, (one) => (Option.isSome(one) ? Effect.succeed(one.value) : Effect.fail(new UnknownWorkspace())))

const make = Effect.fnUntraced(function* (
  verify: (account_id: PoolOwner["account_id"], row: PoolRow) => Effect.Effect<Verified>
) {
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

  const read = Effect.fnUntraced(function* (owner: PoolOwner, provider: Provider, read_at: number) {
    const { rows, version } = yield* orUnknown(load(owner, provider))
    const now = monotonicMillis(clock)
    const pooled = (row: PoolRow) =>
      Effect.map(verify(owner.account_id, row), (verified) => pooledOf(row, verified, now))
    const pool = poolOf(yield* inTime(Effect.forEach(rows, pooled, { concurrency: verifiedAtOnce })))
    const snapshot: Snapshot = {
      version,
      pool,
      byId: new Map(pool.map((one) => [one.credential.id, one])),
      weight: rows.reduce((sum, row) => sum + weightOf(row), 0),
      isVerified: pool.every(({ seal }) => seal === "verified" || seal === "unverified"),
      read_at,
      verified_at: performance.now(),
      validated_at: read_at
    }
    return snapshot
  })

  const start = (owner: PoolOwner, provider: Provider, name: string): Loading => {
    const began = performance.now()
    // Whoever waits for it may leave.
    const fiber = fork(read(owner, provider, began))
    const loading = { began, fiber }
    loadings.set(name, loading)
    fiber.addObserver((exit) => {
      loadings.delete(name)
      if (exit._tag === "Success") keep(name, exit.value)
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
  ): Effect.Effect<Snapshot, ServiceUnavailable | UnknownWorkspace> =>
    Effect.suspend(() => {
      const snapshot = known(name, asked, version)
      if (snapshot !== undefined) return Effect.succeed(snapshot)
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
  ): Effect.Effect<ReadonlyArray<Snapshot>, ServiceUnavailable | UnknownWorkspace> =>
    Effect.flatMap(orUnknown(versions(owner, providers)), (current) => {
      const found = names.map((name, index) => {
        const snapshot = known(name, asked, current[index] ?? "")
        if (snapshot === undefined) return undefined
        keep(name, snapshot)
        snapshot.validated_at = Math.max(snapshot.validated_at, asked)
        return snapshot
      })
      if (found.every((snapshot) => snapshot !== undefined)) return Effect.succeed(found)
      return Effect.forEach(
        providers,
        (provider, index) => {
          const snapshot = found[index]
          return snapshot === undefined
            ? loaded(owner, provider, names[index] ?? "", asked, current[index] ?? "")
            : Effect.succeed(snapshot)
        },
        { concurrency }
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
          if (fresh.length === found.length) return Effect.succeed(fresh)
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
     * began is in them; with a `freshness` in milliseconds, every one that was by that much earlier.
     */
    readonly current: (
      owner: PoolOwner,
      providers: ReadonlyArray<Provider>,
      freshness?: number
    ) => Effect.Effect<ReadonlyArray<Snapshot>, ServiceUnavailable | UnknownWorkspace>
  }
>()("byok/Pools") {
  /** Unwraps the data key of each row under its whole policy, which proves that the policy is what was sealed (E16). */
  static readonly layer = Layer.effect(
    this,
    Effect.flatMap(Cipher, ({ prepare }) =>
      make((account_id, { credential, sealed }) =>
        Effect.match(prepare(sealed, { ...credential, account_id }), {
          onSuccess: (prepared) => ({ seal: "verified", prepared }),
          onFailure: ({ _tag }) => ({ seal: sealStatusByError[_tag] })
        })
      )
    )
  )
  /** Goes by the columns, without a key to verify them. For explanations only. */
  static readonly layerUnverified = Layer.effect(
    this,
    make(() => Effect.succeed({ seal: "unverified" }))
  )
}
