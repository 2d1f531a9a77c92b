import { Clock, Context, Effect, Fiber, Layer, Option } from "effect"
import type { ServiceUnavailable } from "../../domain/Errors.ts"
import type { AccountId, ApiKeyHash, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import { roleAllows } from "../../domain/Principal.ts"
import type { Provider } from "../../domain/Provider.ts"
import { monotonicMillis } from "../../domain/routing/Health.ts"
import type { Cipher } from "../../port/Cipher.ts"
import {
  CredentialPools,
  type PoolOwner,
  type PoolSize,
  type PoolState,
  type PoolVersions
} from "../../port/CredentialPools.ts"
import { type Answer, DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { timeLeft } from "../../runtime/Deadline.ts"
import { MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import { Tokens, type TokensOnly } from "../tokens/Tokens.ts"
import { type Check, isVerified, makeSealCheck, type Member, membersOf } from "./members.ts"
import { ApiKeyMayNotRoute, TooManyCredentials, UnknownApiKey, UnknownWorkspace } from "./RouterErrors.ts"

/** A workspace of an account, the default one unless `workspace_id` is set. */
type WorkspaceSelector = Pick<PoolOwner, "account_id"> & { readonly workspace_id?: WorkspaceId }

/** A workspace of the account of an API key, which must be `account_id` if that is set. */
type KeySelector = Partial<WorkspaceSelector> & { readonly api_key_hash: ApiKeyHash }

/**
 * Caches pools: the credentials of a workspace for one provider, with the health of their keys. Unless the cached pools
 * are fresh enough, a call queries their versions and reads those that changed, once for all callers that wait.
 * Invariant: a cached snapshot serves only if a query within the requested freshness found its version and health
 * unchanged, so none is stale except after changes that raise neither.
 */
export class Pools extends Context.Service<
  Pools,
  {
    /**
     * The pools of a workspace with every change acknowledged before the call, except that the last `freshness`
     * milliseconds of changes may be missing, also of which workspace is the default one. Fails before reading any if they have too many credentials.
     */
    readonly current: (
      workspace: WorkspaceSelector,
      providers: ReadonlyArray<Provider>,
      freshness?: number
    ) => Effect.Effect<WorkspacePools, PoolsFailure>
    /** The pools for an API key. Queries the database each time: the key may be revoked. Fails for another account's. */
    readonly currentForKey: (
      key: KeySelector,
      providers: ReadonlyArray<Provider>
    ) => Effect.Effect<WorkspacePools, PoolsFailure | UnknownApiKey | ApiKeyMayNotRoute>
    /** Makes the next call read a pool anew, at most once a second, because a key in it did not open. */
    readonly expire: (owner: PoolOwner, provider: Provider) => void
  }
>()("byok/Pools") {
  /**
   * Pools whose rows are verified: the data key of a row unwraps only if its policy was sealed with it (E16). Where
   * only tokens may leave the process, also checks that the keys can sign.
   */
  static readonly layer: Layer.Layer<Pools, never, Cipher | CredentialPools | MemoryBudget | TokensOnly> =
    Layer.provide(
      Layer.suspend(() => Layer.effect(this, Effect.flatMap(makeSealCheck, make))),
      Tokens.layer
    )
  /** Pools without a keyring, for explanations only: trusts that rows match their seals. */
  static readonly layerUnverified: Layer.Layer<Pools, never, CredentialPools | MemoryBudget> = Layer.provide(
    Layer.suspend(() =>
      Layer.effect(
        this,
        make(() => ({ seal: "unverified" }))
      )
    ),
    Tokens.layer
  )
}

type PoolsFailure = ServiceUnavailable | DatabaseFailure | UnknownWorkspace | TooManyCredentials

/** Maximum credentials of the providers of one request together: planning 1,000 takes half a millisecond. */
const maxCredentials = 5000

/** The issue of a request whose providers have more. */
export const tooManyCredentials = {
  path: ["targets"],
  message: `must name fewer providers: these have more than ${maxCredentials} credentials`
}

/** The pools of a workspace, in the order of the requested providers. */
export interface WorkspacePools extends PoolOwner {
  readonly snapshots: ReadonlyArray<Snapshot>
}

/** A pool as it was read. Times are in milliseconds of the monotonic clock. */
export interface Snapshot extends Pick<PoolState, "version" | "health"> {
  /** Its name in the cache. */
  readonly key: string
  /** In the order of attempts. */
  readonly pool: ReadonlyArray<Member>
  readonly byId: ReadonlyMap<CredentialId, Member>
  readonly isVerified: boolean
  /** How many elements the lists of its credentials have together. */
  readonly elements: number
  /** When reading its rows began; `-Infinity` once they must be read again. */
  read_at: number
  /** When checking its seals ended. */
  readonly checked_at: number
  /** The last query that returned this version and health. */
  validated: Query
}

/** When a query of the database began. The serial number orders queries of the same moment. */
interface Query {
  readonly serial: number
  readonly at: number
}

/** Maximum age of a snapshot: bounds how long changes by SQL that do not raise its version go unseen. */
const maxAge = 60_000

/** Maximum age of a snapshot with unverified rows: meanwhile a missing key may be added to the keyring. */
const unverifiedMaxAge = 1000

/** Whether all seals are verified, or were checked recently. */
const isChecked = ({ checked_at, isVerified }: Snapshot, now: number): boolean =>
  isVerified || now < checked_at + unverifiedMaxAge

const isUsable = (snapshot: Snapshot, now: number): boolean =>
  now < snapshot.read_at + maxAge && isChecked(snapshot, now)

/** Maximum wait for a pool, in milliseconds, where no request sets a deadline. */
const longestWait = 30_000

const deadlinePassed = new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined })

/** Stops waiting at the deadline of the request, without interrupting the read, for which others may wait. */
const withinDeadline = <A, E>(wait: Effect.Effect<A, E>): Effect.Effect<A, E | DatabaseFailure> =>
  Effect.flatMap(timeLeft(longestWait), (duration) =>
    Effect.timeoutOrElse(wait, { duration, orElse: () => Effect.fail(deadlinePassed) })
  )

/** Maximum pools of one plan to read at a time. */
const readConcurrency = 8

/** Approximate memory of a default workspace, in bytes. */
const defaultBytes = 500

/** Approximate memory of a pool, in bytes: a character takes up to two, and a row has about forty objects. */
const bytesOf = ({ bytes, members }: Pick<PoolState, "bytes" | "members">) => 2 * bytes + 3500 * members + 1000

/** Bytes of an element of a list beside its text: a slot in the list, and the string's header and rounding. */
const elementBytes = 32

/** Bytes of a row of the driver: 1,700 measured. Until a pool is read, each is held beside the `PoolRow` with the same texts. */
const driverRowBytes = 2000

/** Memory of parkings while they are read and converted, as a multiple of their bytes. */
const parkingsFactor = 2

const orUnknownWorkspace = <A, E>(lookup: Effect.Effect<Option.Option<A>, E>): Effect.Effect<A, E | UnknownWorkspace> =>
  Effect.flatMap(lookup, (option): Effect.Effect<A, UnknownWorkspace> =>
    Option.isSome(option) ? Effect.succeed(option.value) : Effect.fail(new UnknownWorkspace())
  )

const sumOf = (numbers: ReadonlyArray<number>) => numbers.reduce((sum, one) => sum + one, 0)

const poolKeyOf = ({ account_id, workspace_id }: PoolOwner, provider: Provider) =>
  `${account_id} ${workspace_id} ${provider}`

/** A pool to find in the cache or to read, and its state in the database. */
interface WantedPool {
  readonly key: string
  readonly owner: PoolOwner
  readonly provider: Provider
  readonly state: PoolState
}

/** A read of a pool, shared by the calls that wait for it. */
interface SharedRead {
  readonly query: Query
  readonly fiber: Fiber.Fiber<Snapshot, ServiceUnavailable | DatabaseFailure | UnknownWorkspace>
}

const make = Effect.fnUntraced(function* (check: Check) {
  const { load, versions, versionsOfKey } = yield* CredentialPools
  const budget = yield* MemoryBudget
  const tokens = yield* Tokens
  const clock = yield* Clock.Clock
  const fork = Effect.runForkWith(yield* Effect.context())
  /** Drops the tokens of a snapshot with it, except those of keys that the next one has in the same version. */
  const cache = budget.makeCache<Snapshot>(({ key, pool }) => tokens.wipePool(pool, cache.get(key)?.byId))
  /** The default workspace of each account, and when a query last returned it. */
  const defaults = budget.makeCache<{ readonly workspace_id: WorkspaceId; readonly at: number }>(() => {})
  /** Reads in progress, at most one per pool. */
  const reads = new Map<string, SharedRead>()
  let queryCount = 0
  const beginQuery = (): Query => ({ serial: (queryCount += 1), at: monotonicMillis(clock) })

  const current: Pools["Service"]["current"] = (selector, providers, freshness = 0) =>
    Effect.suspend(() => {
      const fresh = freshPools(selector, providers, monotonicMillis(clock), freshness)
      if (fresh !== undefined) return Effect.succeed(fresh)
      const query = beginQuery()
      return Effect.flatMap(orUnknownWorkspace(versions(selector, providers)), (pools) => {
        const { account_id, workspace_id } = selector
        if (workspace_id === undefined) {
          defaults.set(account_id, { workspace_id: pools.workspace_id, at: query.at }, defaultBytes)
        }
        return poolsAt(pools, account_id, providers, query)
      })
    })

  const currentForKey: Pools["Service"]["currentForKey"] = ({ account_id: expected, ...key }, providers) =>
    Effect.suspend(() => {
      const query = beginQuery()
      return Effect.flatMap(versionsOfKey(key, providers), (account): ReturnType<Pools["Service"]["currentForKey"]> => {
        if (Option.isNone(account)) return Effect.fail(new UnknownApiKey())
        const { account_id, role, versions } = account.value
        if (expected !== undefined && expected !== account_id) return Effect.fail(new UnknownApiKey())
        if (!roleAllows(role, "route")) return Effect.fail(new ApiKeyMayNotRoute())
        return Option.isNone(versions)
          ? Effect.fail(new UnknownWorkspace())
          : poolsAt(versions.value, account_id, providers, query)
      })
    })

  const expire: Pools["Service"]["expire"] = (owner, provider) => {
    const snapshot = cache.get(poolKeyOf(owner, provider))
    if (snapshot !== undefined && monotonicMillis(clock) >= snapshot.read_at + unverifiedMaxAge) {
      snapshot.read_at = Number.NEGATIVE_INFINITY
    }
  }

  /** The cached pools, and default workspace if none is named, if all were validated within `freshness`. */
  const freshPools = (
    { account_id, workspace_id: named }: WorkspaceSelector,
    providers: ReadonlyArray<Provider>,
    now: number,
    freshness: number
  ): WorkspacePools | undefined => {
    if (freshness === 0) return undefined
    const known = named === undefined ? defaults.get(account_id) : undefined
    const workspace_id = known !== undefined && now <= known.at + freshness ? known.workspace_id : named
    if (workspace_id === undefined) return undefined
    const owner = { account_id, workspace_id }
    const snapshots = providers.map((provider) => cache.get(poolKeyOf(owner, provider)))
    const isFresh = (snapshot: Snapshot | undefined): snapshot is Snapshot =>
      snapshot !== undefined && now <= snapshot.validated.at + freshness && isChecked(snapshot, now)
    const isSmall = sumOf(snapshots.map((snapshot) => snapshot?.pool.length ?? 0)) <= maxCredentials
    return snapshots.every(isFresh) && isSmall ? { ...owner, snapshots } : undefined
  }

  /** Returns the pools in the states that `query` returned. Reads those that the cache lacks, several at a time. */
  const poolsAt = (
    { pools, workspace_id }: PoolVersions,
    account_id: AccountId,
    providers: ReadonlyArray<Provider>,
    query: Query
  ): Effect.Effect<WorkspacePools, PoolsFailure> => {
    if (sumOf(pools.map(({ members }) => members)) > maxCredentials) return Effect.fail(new TooManyCredentials())
    const owner = { account_id, workspace_id }
    const wanted = pools.map((state, index): WantedPool => {
      const provider = providers[index] as Provider
      return { key: poolKeyOf(owner, provider), owner, provider, state }
    })
    const cached = wanted.map((pool) => cachedSnapshot(pool, query))
    if (cached.every((snapshot) => snapshot !== undefined)) return Effect.succeed({ ...owner, snapshots: cached })
    return Effect.map(
      Effect.forEach(wanted, (pool) => snapshotAt(pool, query), { concurrency: readConcurrency }),
      (snapshots) => ({ ...owner, snapshots })
    )
  }

  /** Returns the cached snapshot if it has the wanted state, and marks it validated; or if a later query did. */
  const cachedSnapshot = ({ key, state }: WantedPool, query: Query): Snapshot | undefined => {
    const snapshot = cache.get(key)
    if (snapshot === undefined || !isUsable(snapshot, query.at)) return undefined
    const isValidatedLater = snapshot.validated.serial >= query.serial
    if (snapshot.version !== state.version || snapshot.health !== state.health) {
      return isValidatedLater ? snapshot : undefined
    }
    if (!isValidatedLater) snapshot.validated = query
    return snapshot
  }

  /** Returns the cached snapshot if it has the wanted state; else waits for a read that began after `query`. */
  const snapshotAt = (pool: WantedPool, query: Query): Answer<Snapshot, UnknownWorkspace> =>
    Effect.suspend(() => {
      const snapshot = cachedSnapshot(pool, query)
      if (snapshot !== undefined) return Effect.succeed(snapshot)
      const running = reads.get(pool.key) ?? startRead(pool)
      return running.query.serial > query.serial
        ? withinDeadline(Fiber.join(running.fiber))
        : // An earlier read may return this state all the same: look again when it ends.
          Effect.andThen(withinDeadline(Fiber.await(running.fiber)), snapshotAt(pool, query))
    })

  /** Starts reading a pool in a separate fiber, because the requests that wait for it may be interrupted. */
  const startRead = (pool: WantedPool): SharedRead => {
    const query = beginQuery()
    const fiber = fork(readIntoCache(pool, query))
    const read = { query, fiber }
    reads.set(pool.key, read)
    fiber.addObserver(() => reads.delete(pool.key))
    return read
  }

  /**
   * Reads a pool and caches it. Reuses the cached rows if their version is still the same and they are not too old.
   * Holds memory for the rows while it reads them. Checks only seals that are not verified.
   */
  const readIntoCache = Effect.fnUntraced(function* ({ key, owner, provider, state }: WantedPool, query: Query) {
    const { account_id } = owner
    const previous = cache.get(key)
    const hasCurrentRows = previous?.version === state.version && query.at < previous.read_at + maxAge
    const { giveBack, take } = budget.hold(account_id, "pool")
    let snapshotBytes = 0
    let elements = hasCurrentRows ? previous.elements : 0
    const admit = (size: PoolSize) => {
      if (!hasCurrentRows) elements = size.elements
      const driverRows = hasCurrentRows ? 0 : driverRowBytes * state.members
      const rows = bytesOf(state) + elementBytes * elements
      snapshotBytes = rows + size.parkings
      return take(rows + driverRows + parkingsFactor * size.parkings)
    }
    const reusableVersion = hasCurrentRows ? state.version : undefined
    const reading = Effect.gen(function* () {
      const stored = yield* orUnknownWorkspace(load(owner, provider, reusableVersion, admit))
      const pool = yield* membersOf(check, stored, previous, account_id, monotonicMillis(clock))
      return { pool, stored }
    })
    const { pool, stored } = yield* onEnd(reading, () => giveBack())
    const snapshot: Snapshot = {
      key,
      version: stored.version,
      health: stored.health,
      pool,
      elements,
      byId: new Map(pool.map((member) => [member.credential.id, member])),
      isVerified: pool.every(isVerified),
      read_at: stored.rows === undefined && previous !== undefined ? previous.read_at : query.at,
      checked_at: monotonicMillis(clock),
      validated: query
    }
    cache.set(key, snapshot, snapshotBytes)
    return snapshot
  })

  return Pools.of({ current, currentForKey, expire })
})
