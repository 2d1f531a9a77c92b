import { Clock, Context, Duration, Effect, Fiber, Layer, Option } from "effect"
import type { ServiceUnavailable } from "../../domain/Errors.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import { roleAllows } from "../../domain/Principal.ts"
import { type Provider, signsTokens } from "../../domain/Provider.ts"
import {
  type Cooldown,
  cooldownCauseOf,
  longestCooldown,
  monotonicMillis,
  initialCooldown
} from "../../domain/routing/Health.ts"
import { type PooledCredential, poolOf, type Seal } from "../../domain/routing/Pool.ts"
import { contextOf, encodeSealingContext, type SealedKey } from "../../domain/SealedKey.ts"
import { Cipher, type OpenFailure } from "../../port/Cipher.ts"
import {
  CredentialPools,
  type PoolOwner,
  type PoolRow,
  type PoolState,
  type PoolVersions,
  type StoredParking
} from "../../port/CredentialPools.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { timeLeft, withDeadline } from "../../runtime/Deadline.ts"
import { type Reservation, MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { canSign } from "../tokens/mint.ts"
import { Tokens, TokensOnly } from "../tokens/Tokens.ts"
import { ApiKeyMayNotRoute, UnknownApiKey, UnknownWorkspace } from "./RouterErrors.ts"
import { makeTurns } from "./Turns.ts"

export const sealStatusByError = {
  AuthenticationFailed: "altered",
  UnknownKeyId: "unknown_key",
  UnsupportedFormat: "unsupported",
  KeyStoreUnavailable: "unavailable"
} as const satisfies Record<OpenFailure["_tag"], Seal>

type Member = PooledCredential & { readonly sealed: SealedKey }

/** A pool at one time. Times are in milliseconds of the monotonic clock. */
export interface Snapshot extends Pick<PoolState, "version" | "health"> {
  /** In the order of attempts. */
  readonly pool: ReadonlyArray<Member>
  readonly byId: ReadonlyMap<CredentialId, Member>
  readonly isVerified: boolean
  /** Unique serial number. */
  readonly n: number
  /** When reading its credentials began, and when their seals were checked. */
  readonly read_at: number
  readonly checked_at: number
  /** The last query that returned this version and health. */
  validated: Query
}

/** A query of the database: serial number, which breaks ties of time, and start. */
interface Query {
  readonly n: number
  readonly at: number
}

/** The pools of a workspace, in the order of the requested providers. */
export interface WorkspacePools extends PoolOwner {
  readonly snapshots: ReadonlyArray<Snapshot>
}

/** Maximum age of a snapshot: bounds how long changes by SQL that do not raise its version go unseen. */
const maxAge = 60_000

/** Maximum age of a snapshot with unverified rows: meanwhile a missing key may be added, or the key store recover. */
const unverifiedMaxAge = 1000

const isVerified = ({ seal }: Member) => seal === "verified"

/** Whether all seals are verified, or the last check ended recently: a hanging key store makes a check take seconds. */
const isChecked = ({ checked_at, isVerified }: Snapshot, now: number): boolean =>
  isVerified || now < checked_at + unverifiedMaxAge

const isUsable = (snapshot: Snapshot, now: number): boolean =>
  now < snapshot.read_at + maxAge && isChecked(snapshot, now)

/** Maximum wait for a pool outside of a request, in milliseconds. */
const longestWait = 30_000

const deadlinePassed = new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined })

/** Pools of one plan read at a time. */
const concurrency = 8

/** Rows checked at a time, for remote key stores. */
const checkConcurrency = 16

/** Deadline for checking the seals of a pool. Rows unchecked by then count as unavailable. */
const inTime = withDeadline(Duration.seconds(3))

/** Approximate memory of a pool, in bytes: a character takes up to two, and a row has about forty objects. */
const weightOf = ({ bytes, members }: Pick<PoolState, "bytes" | "members">) => 2 * bytes + 3500 * members + 1000

/** Memory while reading, as a multiple of the result: rows arrive as bytes and text, parkings as JSON. */
const readingFactor = { pool: 2, parkings: 4 }

/** A read of a pool, shared by the plans that wait for it. */
interface Loading {
  readonly query: Query
  readonly fiber: Fiber.Fiber<Snapshot, ServiceUnavailable | UnknownWorkspace>
}

/** Stops waiting at this request's deadline, without interrupting the read. */
const withinDeadline = <A, E>(wait: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.flatMap(timeLeft(longestWait), (duration) =>
    Effect.timeoutOrElse(wait, { duration, orElse: () => Effect.die(deadlinePassed) })
  )

const cooldownOf = ({ cause, epoch, key_version, remaining, strikes }: StoredParking, now: number): Cooldown =>
  remaining === null
    ? { ...initialCooldown(key_version), epoch }
    : { key_version, epoch, until: now + Math.min(remaining, longestCooldown), strikes, cause: cooldownCauseOf(cause) }

const healthOf = (parkings: ReadonlyArray<StoredParking> = [], now: number) => {
  const cooldowns = parkings.filter(({ cause }) => cause !== "leaked")
  return {
    leaked: cooldowns.length < parkings.length,
    stored: new Map(cooldowns.map((parking) => [parking.model, cooldownOf(parking, now)]))
  }
}

const orUnknown = <A, E>(lookup: Effect.Effect<Option.Option<A>, E>): Effect.Effect<A, E | UnknownWorkspace> =>
  Effect.flatMap(lookup, (one): Effect.Effect<A, UnknownWorkspace> =>
    Option.isSome(one) ? Effect.succeed(one.value) : Effect.fail(new UnknownWorkspace())
  )

type Sealed = Pick<Member, "credential" | "sealed">

/** Whether two rows have the same sealed key and context. Names, orders and rewrapped data keys may differ. */
const isSameSeal = (one: Sealed, other: Sealed, account_id: AccountId): boolean =>
  Buffer.compare(one.sealed.sealed, other.sealed.sealed) === 0 &&
  encodeSealingContext({ ...one.credential, account_id }) === encodeSealingContext({ ...other.credential, account_id })

type Checked = Pick<PooledCredential, "seal" | "cannotSign">

const make = Effect.fnUntraced(function* (check: (account_id: AccountId, row: Sealed) => Effect.Effect<Checked>) {
  const { load, versions, versionsOfKey } = yield* CredentialPools
  const budget = yield* MemoryBudget
  const tokens = yield* Tokens
  const clock = yield* Clock.Clock
  const fork = Effect.runForkWith(yield* Effect.context())
  /** `parkings` reserves memory for parkings read after their pool. */
  interface CacheEntry {
    snapshot: Snapshot
    readonly reservation: Reservation
    parkings?: Reservation
  }
  const cache = new Map<string, CacheEntry>()
  const loadings = new Map<string, Loading>()
  let queries = 0
  let snapshots = 0
  const beginQuery = (): Query => ({ n: (queries += 1), at: monotonicMillis(clock) })

  const poolKeyOf = ({ account_id, workspace_id }: PoolOwner, provider: Provider) =>
    `${account_id} ${workspace_id} ${provider}`

  /**
   * Reads a pool, or only its parkings if it still has `version`. Reserves memory for both at once, because whoever waits for
   * memory must hold none; `weight` is 0 for parkings alone. Checks again only rows whose seal may have changed.
   */
  const readFrom = Effect.fnUntraced(function* (
    owner: PoolOwner,
    provider: Provider,
    known: Snapshot | undefined,
    version: string | undefined,
    weight: number,
    validated: Query
  ) {
    const { account_id } = owner
    let reservation = budget.reserve(account_id, "pool")
    let keptBytes = 0
    const admit = Effect.fnUntraced(function* (parkings: number) {
      const bytes = readingFactor.pool * weight + readingFactor.parkings * parkings
      reservation = yield* withDeadline(Duration.millis(longestWait))(
        Effect.suspend(() => budget.admit(account_id, "pool", bytes))
      )
      keptBytes = weight + parkings
    })
    const release = Effect.sync(() => reservation.release())
    const stored = yield* Effect.onError(orUnknown(load(owner, provider, version, admit)), () => release)
    const now = monotonicMillis(clock)
    const carriedCheck = (row: PoolRow): Checked => {
      const before = known?.byId.get(row.credential.id)
      if (before === undefined || (before.row !== row.row && !isSameSeal(before, row, account_id)))
        return { seal: "unavailable" }
      const { cannotSign = false, seal } = before
      return { seal, cannotSign }
    }
    const health = ({ credential: { id } }: Sealed) => healthOf(stored.parkings.get(id), now)
    const pool =
      stored.rows === undefined
        ? (known?.pool ?? []).map((member) => ({ ...member, ...health(member) }))
        : poolOf(stored.rows.map((row) => ({ ...row, ...health(row), ...carriedCheck(row) })))
    const checking = inTime(
      Effect.forEach(
        pool,
        (member) =>
          isVerified(member)
            ? Effect.succeed(member)
            : Effect.map(check(account_id, member), (checked) => ({ ...member, ...checked })),
        { concurrency: checkConcurrency }
      )
    )
    const checkedPool = yield* Effect.onError(checking, () => release)
    reservation.shrink(keptBytes)
    const snapshot: Snapshot = {
      version: stored.version,
      health: stored.health,
      pool: checkedPool,
      byId: new Map(checkedPool.map((member) => [member.credential.id, member])),
      isVerified: checkedPool.every(isVerified),
      n: (snapshots += 1),
      read_at: stored.rows === undefined && known !== undefined ? known.read_at : validated.at,
      checked_at: monotonicMillis(clock),
      validated
    }
    return { snapshot, reservation }
  })

  const evict = (key: string, next?: Snapshot) => {
    const entry = cache.get(key)
    cache.delete(key)
    if (entry !== undefined) tokens.wipePool(entry.snapshot.pool, next?.byId)
    entry?.reservation.release()
    entry?.parkings?.release()
  }

  /** Reads a pool into the cache, or only its parkings if the rest is up to date. */
  const read = Effect.fnUntraced(function* (owner: PoolOwner, provider: Provider, state: PoolState, query: Query) {
    const key = poolKeyOf(owner, provider)
    const current = cache.get(key)
    const known = current?.snapshot
    if (current?.snapshot.version === state.version && query.at < current.snapshot.read_at + maxAge) {
      const { reservation, snapshot } = yield* readFrom(owner, provider, known, state.version, 0, query)
      const isSame = snapshot.version === state.version
      if (isSame && cache.get(key) === current) {
        current.parkings?.release()
        current.reservation.shrink(weightOf(state))
        current.parkings = reservation
        current.snapshot = snapshot
        reservation.makeEvictable(() => evict(key))
      } else reservation.release()
      if (isSame) return snapshot
    }
    const { reservation, snapshot } = yield* readFrom(owner, provider, known, undefined, weightOf(state), query)
    evict(key, snapshot)
    cache.set(key, { snapshot, reservation })
    reservation.makeEvictable(() => evict(key))
    return snapshot
  })

  const start = (owner: PoolOwner, provider: Provider, state: PoolState, key: string): Loading => {
    const query = beginQuery()
    // Forked, because the waiting requests may leave.
    const fiber = fork(read(owner, provider, state, query))
    const loading = { query, fiber }
    loadings.set(key, loading)
    fiber.addObserver(() => loadings.delete(key))
    return loading
  }

  /** The cached snapshot if it has this state, or was validated after `query`. */
  const currentOf = (key: string, state: PoolState, query: Query): Snapshot | undefined => {
    const entry = cache.get(key)
    if (entry === undefined || !isUsable(entry.snapshot, query.at)) return undefined
    const { snapshot } = entry
    if (snapshot.version !== state.version || snapshot.health !== state.health) {
      return snapshot.validated.n < query.n ? undefined : snapshot
    }
    if (snapshot.validated.n < query.n) snapshot.validated = query
    entry.reservation.touch()
    entry.parkings?.touch()
    return snapshot
  }

  /** Returns the cached snapshot if it is current; else waits for a read that began after `query`. */
  const loadOne = (
    owner: PoolOwner,
    provider: Provider,
    state: PoolState,
    query: Query
  ): Effect.Effect<Snapshot, ServiceUnavailable | UnknownWorkspace> =>
    Effect.suspend(() => {
      const key = poolKeyOf(owner, provider)
      const snapshot = currentOf(key, state, query)
      if (snapshot !== undefined) return Effect.succeed(snapshot)
      const running = loadings.get(key) ?? start(owner, provider, state, key)
      return running.query.n > query.n
        ? withinDeadline(Fiber.join(running.fiber))
        : // Its read may predate `query`, but may also return the right version: wait before reading again.
          Effect.andThen(withinDeadline(Fiber.await(running.fiber)), loadOne(owner, provider, state, query))
    })

  /** The cached pools, if all were validated within `freshness`. */
  const freshOf = (
    { account_id, workspace_id }: WorkspaceSelector,
    providers: ReadonlyArray<Provider>,
    now: number,
    freshness: number
  ): WorkspacePools | undefined => {
    if (workspace_id === undefined || freshness === 0) return undefined
    const snapshots: Array<Snapshot> = []
    for (const provider of providers) {
      const snapshot = cache.get(poolKeyOf({ account_id, workspace_id }, provider))?.snapshot
      if (snapshot === undefined || snapshot.validated.at + freshness < now || !isChecked(snapshot, now))
        return undefined
      snapshots.push(snapshot)
    }
    return { account_id, workspace_id, snapshots }
  }

  /** Loads several pools at a time. */
  const loadEach = (
    owner: PoolOwner,
    pools: PoolVersions["pools"],
    providers: ReadonlyArray<Provider>,
    query: Query
  ) => {
    const loading = Effect.forEach(
      pools,
      (state, index) => loadOne(owner, providers[index] as Provider, state, query),
      {
        concurrency
      }
    )
    return Effect.map(loading, (snapshots) => ({ ...owner, snapshots }))
  }

  /** Returns the cached snapshots if all are current; else loads those that are not. */
  const loadAll = (
    account_id: AccountId,
    { pools, workspace_id }: PoolVersions,
    providers: ReadonlyArray<Provider>,
    query: Query
  ): Effect.Effect<WorkspacePools, ServiceUnavailable | UnknownWorkspace> => {
    const owner = { account_id, workspace_id }
    const snapshots: Array<Snapshot> = []
    for (const [index, state] of pools.entries()) {
      const snapshot = currentOf(poolKeyOf(owner, providers[index] as Provider), state, query)
      if (snapshot === undefined) return loadEach(owner, pools, providers, query)
      snapshots.push(snapshot)
    }
    return Effect.succeed({ account_id, workspace_id, snapshots })
  }

  const current: Pools["Service"]["current"] = (selector, providers, freshness = 0) =>
    Effect.suspend(() => {
      const fresh = freshOf(selector, providers, monotonicMillis(clock), freshness)
      if (fresh !== undefined) return Effect.succeed(fresh)
      const query = beginQuery()
      return Effect.flatMap(orUnknown(versions(selector, providers)), (pools) =>
        loadAll(selector.account_id, pools, providers, query)
      )
    })

  return Pools.of({
    ...(yield* makeTurns),
    current,
    currentForKey: (key, providers) =>
      Effect.suspend(() => {
        const query = beginQuery()
        return Effect.flatMap(
          versionsOfKey(key, providers),
          (account): ReturnType<Pools["Service"]["currentForKey"]> =>
            Option.isNone(account)
              ? Effect.fail(new UnknownApiKey())
              : !roleAllows(account.value.role, "route")
                ? Effect.fail(new ApiKeyMayNotRoute())
                : Effect.flatMap(orUnknown(Effect.succeed(account.value.versions)), (versions) =>
                    loadAll(account.value.account_id, versions, providers, query)
                  )
        )
      }),
    reread: (owner, provider) =>
      Effect.suspend(() => {
        const entry = cache.get(poolKeyOf(owner, provider))
        if (entry !== undefined && monotonicMillis(clock) >= entry.snapshot.read_at + unverifiedMaxAge) {
          entry.snapshot = { ...entry.snapshot, read_at: Number.NEGATIVE_INFINITY }
        }
        return current(owner, [provider])
      })
  })
})

/** A workspace of an account; the default one unless named. */
type WorkspaceSelector = Pick<PoolOwner, "account_id"> & { readonly workspace_id?: WorkspaceId }

/**
 * Caches snapshots of pools. Invariant: a snapshot serves only while its version and health equal the database's, so none is
 * stale except after changes that do not raise them.
 */
export class Pools extends Context.Service<
  Pools,
  Effect.Success<typeof makeTurns> & {
    /**
     * The pools of a workspace with every change acknowledged before the call, or `freshness` milliseconds earlier if the
     * workspace is named. Fails if a pool does not fit into memory.
     */
    readonly current: (
      workspace: WorkspaceSelector,
      providers: ReadonlyArray<Provider>,
      freshness?: number
    ) => Effect.Effect<WorkspacePools, ServiceUnavailable | UnknownWorkspace>
    /** The pools for an API key. Queries the database each time: the key may be revoked. */
    readonly currentForKey: (
      key: Parameters<CredentialPools["Service"]["versionsOfKey"]>[0],
      providers: ReadonlyArray<Provider>
    ) => Effect.Effect<WorkspacePools, ServiceUnavailable | UnknownWorkspace | UnknownApiKey | ApiKeyMayNotRoute>
    /** Reads a pool again, at most once a second, after a key in it did not open: it may have been rewrapped. */
    readonly reread: (
      owner: PoolOwner,
      provider: Provider
    ) => Effect.Effect<WorkspacePools, ServiceUnavailable | UnknownWorkspace>
  }
>()("byok/Pools") {
  /**
   * Unwraps the data key of each row, which proves that its policy was sealed with it (E16). Where only tokens may leave the
   * process, opens keys to check that they can sign.
   */
  static readonly layer = Layer.provide(
    Layer.effect(
      this,
      Effect.gen(function* () {
        const { read, verify } = yield* Cipher
        const tokensOnly = yield* TokensOnly
        return yield* make((account_id, { credential, sealed }) => {
          const context = contextOf({ ...credential, account_id })
          const { provider } = credential
          const checked =
            tokensOnly && signsTokens(provider)
              ? read(sealed, context, (key) => !canSign(provider, key.toString("utf8")))
              : Effect.as(verify(sealed, context), false)
          return Effect.match(checked, {
            onSuccess: (cannotSign) => ({ seal: "verified", cannotSign }),
            onFailure: ({ _tag }) => ({ seal: sealStatusByError[_tag] })
          })
        })
      })
    ),
    Tokens.layer
  )
  /** Trusts the columns, without a keyring. For explanations only. */
  static readonly layerUnverified = Layer.provide(
    Layer.effect(
      this,
      make(() => Effect.succeed({ seal: "unverified" }))
    ),
    Tokens.layer
  )
}
