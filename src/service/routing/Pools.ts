import { Clock, Context, Duration, Effect, Fiber, Layer, Option } from "effect"
import type { ServiceUnavailable } from "../../domain/Errors.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import { roleMay } from "../../domain/Principal.ts"
import { type Provider, signsTokens } from "../../domain/Provider.ts"
import {
  type Cooldown,
  cooldownCauseOf,
  longestCooldown,
  monotonicMillis,
  unknown
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
import { type Holding, MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { canSign } from "../tokens/mint.ts"
import { Tokens, TokensOnly } from "../tokens/Tokens.ts"
import { ApiKeyMayNotRoute, UnknownApiKey, UnknownWorkspace } from "./RouterErrors.ts"
import { makeTurns } from "./Turns.ts"

/** The seal of a row whose key does not open, by the error. */
export const sealStatusByError = {
  AuthenticationFailed: "altered",
  UnknownKeyId: "unknown_key",
  UnsupportedFormat: "unsupported",
  KeyStoreUnavailable: "unavailable"
} as const satisfies Record<OpenFailure["_tag"], Seal>

/** A credential with its sealed key, which a lease opens. */
type Member = PooledCredential & { readonly sealed: SealedKey }

/** A pool as the database had it. Times are in milliseconds of the monotonic clock. */
export interface Snapshot extends Pick<PoolState, "version" | "health"> {
  /** In the order in which they are tried. */
  readonly pool: ReadonlyArray<Member>
  readonly byId: ReadonlyMap<CredentialId, Member>
  readonly isVerified: boolean
  /** Its place among all that were read: no two have the same. */
  readonly n: number
  /** When reading its credentials began, and when their seals were checked. */
  readonly read_at: number
  readonly checked_at: number
  /** The last question that the database answered with this version and health. */
  validated: Question
}

/** A question to the database: its place among all, as several may have one time, and when it began. */
interface Question {
  readonly n: number
  readonly at: number
}

/** The pools of a workspace, in the order of the providers that were asked for. */
export interface WorkspacePools extends PoolOwner {
  readonly snapshots: ReadonlyArray<Snapshot>
}

/** How long a pool is kept before it is read again: changes by SQL that do not raise its version are seen then. */
const longestKept = 60_000

/** How long a snapshot is used in which a row is not verified: its key may arrive, or the key store answer again. */
const unverifiedKept = 1000

const isVerified = ({ seal }: Member) => seal === "verified"

/** A key store that hangs delays the check of seals, so that counts from its end. */
const isChecked = ({ checked_at, isVerified }: Snapshot, now: number): boolean =>
  isVerified || now < checked_at + unverifiedKept

const isUsable = (snapshot: Snapshot, now: number): boolean =>
  now < snapshot.read_at + longestKept && isChecked(snapshot, now)

/** How long a plan outside of a request waits for a pool, in milliseconds. */
const longestWait = 30_000

const deadlinePassed = new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined })

/** How many pools of one plan are read at a time. */
const concurrency = 8

/** How many rows are checked at a time, for key stores that are remote. */
const checkedAtOnce = 16

/** How long checking the seals of a pool may take. Rows that are not checked by then count as unavailable. */
const inTime = withDeadline(Duration.seconds(3))

/** How many bytes a pool takes in memory, about: text takes two bytes a character or one, and a row has about forty objects. */
const weightOf = ({ bytes, members }: Pick<PoolState, "bytes" | "members">) => 2 * bytes + 3500 * members + 1000

/** Reading takes this many times what is kept: rows arrive as bytes and are read as text, parkings as text of JSON. */
const whileReading = { pool: 2, parkings: 4 }

/** Reading a pool that several plans wait for. */
interface Loading {
  readonly question: Question
  readonly fiber: Fiber.Fiber<Snapshot, ServiceUnavailable | UnknownWorkspace>
}

/** Stop waiting at this request's deadline. Others may still wait for the pool. */
const withinDeadline = <A, E>(wait: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.flatMap(timeLeft(longestWait), (duration) =>
    Effect.timeoutOrElse(wait, { duration, orElse: () => Effect.die(deadlinePassed) })
  )

/** A stored cooldown, read at a monotonic time. */
const cooldownOf = ({ cause, epoch, key_version, remaining, strikes }: StoredParking, now: number): Cooldown =>
  remaining === null
    ? { ...unknown(key_version), epoch }
    : { key_version, epoch, until: now + Math.min(remaining, longestCooldown), strikes, cause: cooldownCauseOf(cause) }

/** What the parkings of a key say of it. */
const healthOf = (parkings: ReadonlyArray<StoredParking> = [], now: number) => {
  const cooldowns = parkings.filter(({ cause }) => cause !== "leaked")
  return {
    leaked: cooldowns.length < parkings.length,
    stored: new Map(cooldowns.map((parking) => [parking.model, cooldownOf(parking, now)]))
  }
}

const orUnknown = <A, E>(found: Effect.Effect<Option.Option<A>, E>): Effect.Effect<A, E | UnknownWorkspace> =>
  Effect.flatMap(found, (one): Effect.Effect<A, UnknownWorkspace> =>
    Option.isSome(one) ? Effect.succeed(one.value) : Effect.fail(new UnknownWorkspace())
  )

type Sealed = Pick<Member, "credential" | "sealed">

/** Whether what was sealed is the same in two rows. A name, an order or a rewrapped data key is not part of it. */
const isSameSeal = (one: Sealed, other: Sealed, account_id: AccountId): boolean =>
  Buffer.compare(one.sealed.sealed, other.sealed.sealed) === 0 &&
  encodeSealingContext({ ...one.credential, account_id }) === encodeSealingContext({ ...other.credential, account_id })

/** What is found out about a row before it is offered. */
type Checked = Pick<PooledCredential, "seal" | "cannotSign">

const make = Effect.fnUntraced(function* (check: (account_id: AccountId, row: Sealed) => Effect.Effect<Checked>) {
  const { load, versions, versionsOfKey } = yield* CredentialPools
  const budget = yield* MemoryBudget
  const tokens = yield* Tokens
  const clock = yield* Clock.Clock
  const fork = Effect.runForkWith(yield* Effect.context())
  /** What parkings take is held apart from their pool once they have been read without it. */
  interface Kept {
    snapshot: Snapshot
    readonly holding: Holding
    parkings?: Holding
  }
  const kept = new Map<string, Kept>()
  const loadings = new Map<string, Loading>()
  let questions = 0
  let snapshots = 0
  const ask = (): Question => ({ n: (questions += 1), at: monotonicMillis(clock) })

  const poolKeyOf = ({ account_id, workspace_id }: PoolOwner, provider: Provider) =>
    `${account_id} ${workspace_id} ${provider}`

  /**
   * Reads a pool, or its parkings alone if it is still of a version, in memory that is admitted before: at once for both, as
   * whoever waits for more must hold nothing. A row that was verified stays so until what was sealed changes.
   */
  const readFrom = Effect.fnUntraced(function* (
    owner: PoolOwner,
    provider: Provider,
    known: Snapshot | undefined,
    version: string | undefined,
    weight: number,
    validated: Question
  ) {
    const { account_id } = owner
    let holding = budget.hold(account_id, "pool")
    let keeps = 0
    const admit = Effect.fnUntraced(function* (parkings: number) {
      const bytes = whileReading.pool * weight + whileReading.parkings * parkings
      holding = yield* withDeadline(Duration.millis(longestWait))(
        Effect.suspend(() => budget.admit(account_id, "pool", bytes))
      )
      keeps = weight + parkings
    })
    const release = Effect.sync(() => holding.release())
    const stored = yield* Effect.onError(orUnknown(load(owner, provider, version, admit)), () => release)
    const now = monotonicMillis(clock)
    const knownOf = (row: PoolRow): Checked => {
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
        : poolOf(stored.rows.map((row) => ({ ...row, ...health(row), ...knownOf(row) })))
    const checking = inTime(
      Effect.forEach(
        pool,
        (member) =>
          isVerified(member)
            ? Effect.succeed(member)
            : Effect.map(check(account_id, member), (checked) => ({ ...member, ...checked })),
        { concurrency: checkedAtOnce }
      )
    )
    const checkedPool = yield* Effect.onError(checking, () => release)
    holding.shrink(keeps)
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
    return { snapshot, holding }
  })

  const forget = (key: string, next?: Snapshot) => {
    const found = kept.get(key)
    kept.delete(key)
    if (found !== undefined) tokens.retain(found.snapshot.pool, next?.byId)
    found?.holding.release()
    found?.parkings?.release()
  }

  /** Reads a pool whose state is known, in memory that is admitted for it before. */
  const read = Effect.fnUntraced(function* (
    owner: PoolOwner,
    provider: Provider,
    state: PoolState,
    question: Question
  ) {
    const key = poolKeyOf(owner, provider)
    const current = kept.get(key)
    const known = current?.snapshot
    if (current?.snapshot.version === state.version && question.at < current.snapshot.read_at + longestKept) {
      const { holding, snapshot } = yield* readFrom(owner, provider, known, state.version, 0, question)
      const isSame = snapshot.version === state.version
      if (isSame && kept.get(key) === current) {
        current.parkings?.release()
        current.holding.shrink(weightOf(state))
        current.parkings = holding
        current.snapshot = snapshot
        holding.spare(() => forget(key))
      } else holding.release()
      if (isSame) return snapshot
    }
    const { holding, snapshot } = yield* readFrom(owner, provider, known, undefined, weightOf(state), question)
    forget(key, snapshot)
    kept.set(key, { snapshot, holding })
    holding.spare(() => forget(key))
    return snapshot
  })

  const start = (owner: PoolOwner, provider: Provider, state: PoolState, key: string): Loading => {
    const question = ask()
    // Whoever waits for it may leave.
    const fiber = fork(read(owner, provider, state, question))
    const loading = { question, fiber }
    loadings.set(key, loading)
    fiber.addObserver(() => loadings.delete(key))
    return loading
  }

  /** The snapshot that is of this state, or was validated since the state was asked for. */
  const currentOf = (key: string, state: PoolState, asked: Question): Snapshot | undefined => {
    const found = kept.get(key)
    if (found === undefined || !isUsable(found.snapshot, asked.at)) return undefined
    const { snapshot } = found
    if (snapshot.version !== state.version || snapshot.health !== state.health) {
      return snapshot.validated.n < asked.n ? undefined : snapshot
    }
    if (snapshot.validated.n < asked.n) snapshot.validated = asked
    found.holding.touch()
    found.parkings?.touch()
    return snapshot
  }

  const loaded = (
    owner: PoolOwner,
    provider: Provider,
    state: PoolState,
    asked: Question
  ): Effect.Effect<Snapshot, ServiceUnavailable | UnknownWorkspace> =>
    Effect.suspend(() => {
      const key = poolKeyOf(owner, provider)
      const snapshot = currentOf(key, state, asked)
      if (snapshot !== undefined) return Effect.succeed(snapshot)
      const running = loadings.get(key) ?? start(owner, provider, state, key)
      return running.question.n > asked.n
        ? withinDeadline(Fiber.join(running.fiber))
        : // It may have read what was before the question. One at a time: what it reads may yet be of the right version.
          Effect.andThen(withinDeadline(Fiber.await(running.fiber)), loaded(owner, provider, state, asked))
    })

  /** The pools that the database confirmed within a time, if the workspace is named and they are all known. */
  const freshOf = (
    { account_id, workspace_id }: AskedWorkspace,
    providers: ReadonlyArray<Provider>,
    now: number,
    freshness: number
  ): WorkspacePools | undefined => {
    if (workspace_id === undefined || freshness === 0) return undefined
    const snapshots: Array<Snapshot> = []
    for (const provider of providers) {
      const snapshot = kept.get(poolKeyOf({ account_id, workspace_id }, provider))?.snapshot
      if (snapshot === undefined || snapshot.validated.at + freshness < now || !isChecked(snapshot, now))
        return undefined
      snapshots.push(snapshot)
    }
    return { account_id, workspace_id, snapshots }
  }

  const loadedEach = (
    owner: PoolOwner,
    pools: PoolVersions["pools"],
    providers: ReadonlyArray<Provider>,
    asked: Question
  ) => {
    const loading = Effect.forEach(pools, (state, index) => loaded(owner, providers[index] as Provider, state, asked), {
      concurrency
    })
    return Effect.map(loading, (snapshots) => ({ ...owner, snapshots }))
  }

  const loadedAll = (
    account_id: AccountId,
    { pools, workspace_id }: PoolVersions,
    providers: ReadonlyArray<Provider>,
    asked: Question
  ): Effect.Effect<WorkspacePools, ServiceUnavailable | UnknownWorkspace> => {
    const owner = { account_id, workspace_id }
    const snapshots: Array<Snapshot> = []
    for (const [index, state] of pools.entries()) {
      const snapshot = currentOf(poolKeyOf(owner, providers[index] as Provider), state, asked)
      if (snapshot === undefined) return loadedEach(owner, pools, providers, asked)
      snapshots.push(snapshot)
    }
    return Effect.succeed({ account_id, workspace_id, snapshots })
  }

  const current: Pools["Service"]["current"] = (asking, providers, freshness = 0) =>
    Effect.suspend(() => {
      const fresh = freshOf(asking, providers, monotonicMillis(clock), freshness)
      if (fresh !== undefined) return Effect.succeed(fresh)
      const asked = ask()
      return Effect.flatMap(orUnknown(versions(asking, providers)), (found) =>
        loadedAll(asking.account_id, found, providers, asked)
      )
    })

  return Pools.of({
    ...(yield* makeTurns),
    current,
    ofKey: (key, providers) =>
      Effect.suspend(() => {
        const asked = ask()
        return Effect.flatMap(versionsOfKey(key, providers), (known): ReturnType<Pools["Service"]["ofKey"]> =>
          Option.isNone(known)
            ? Effect.fail(new UnknownApiKey())
            : !roleMay(known.value.role, "route")
              ? Effect.fail(new ApiKeyMayNotRoute())
              : Effect.flatMap(orUnknown(Effect.succeed(known.value.found)), (found) =>
                  loadedAll(known.value.account_id, found, providers, asked)
                )
        )
      }),
    reread: (owner, provider) =>
      Effect.suspend(() => {
        const found = kept.get(poolKeyOf(owner, provider))
        if (found !== undefined && monotonicMillis(clock) >= found.snapshot.read_at + unverifiedKept) {
          found.snapshot = { ...found.snapshot, read_at: Number.NEGATIVE_INFINITY }
        }
        return current(owner, [provider])
      })
  })
})

/** A workspace of an account: its default one unless one is named. */
type AskedWorkspace = Pick<PoolOwner, "account_id"> & { readonly workspace_id?: WorkspaceId }

/**
 * Snapshots of pools. Invariant: each is used only while its version and health are the database's, so there is no time for
 * which they are stale, except after changes that do not raise them.
 */
export class Pools extends Context.Service<
  Pools,
  Effect.Success<typeof makeTurns> & {
    /**
     * The pools of a workspace. Every change that was acknowledged before this began is in them; with a `freshness` in
     * milliseconds, and the workspace named, every one that was by that much earlier. Fails if a pool does not fit into memory.
     */
    readonly current: (
      workspace: AskedWorkspace,
      providers: ReadonlyArray<Provider>,
      freshness?: number
    ) => Effect.Effect<WorkspacePools, ServiceUnavailable | UnknownWorkspace>
    /** The same of the account of an API key; the database is asked each time, as the key may be revoked. */
    readonly ofKey: (
      key: Parameters<CredentialPools["Service"]["versionsOfKey"]>[0],
      providers: ReadonlyArray<Provider>
    ) => Effect.Effect<WorkspacePools, ServiceUnavailable | UnknownWorkspace | UnknownApiKey | ApiKeyMayNotRoute>
    /** A pool after a key of it did not open, read again at most once a second: it may have been rewrapped. */
    readonly reread: (
      owner: PoolOwner,
      provider: Provider
    ) => Effect.Effect<WorkspacePools, ServiceUnavailable | UnknownWorkspace>
  }
>()("byok/Pools") {
  /**
   * Unwraps the data key of each row under its whole policy, which proves that the policy is what was sealed (E16). Where only
   * tokens may leave the process, keys that should sign them are opened to see whether they can.
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
  /** Goes by the columns, without a key to verify them. For explanations only. */
  static readonly layerUnverified = Layer.provide(
    Layer.effect(
      this,
      make(() => Effect.succeed({ seal: "unverified" }))
    ),
    Tokens.layer
  )
}
