import { join } from "node:path"
import { Effect } from "effect"
import { eventually } from "../support/process/eventually.ts"
import { type Cluster, copyOf, newCluster, sendTo, writeOwn } from "./Cluster.ts"

/** Two servers, of which one follows the other. */
export interface Pair {
  readonly primary: Cluster
  readonly standby: Cluster
  /** Stops the replication to the standby silently. */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  /** Promotes the standby to primary. */
  readonly promote: Effect.Effect<void>
  /** Starts the standby again. */
  readonly follow: Effect.Effect<void>
  /** Starts the old primary, which has stopped, as a standby of the new one. */
  readonly rejoin: Effect.Effect<void>
}

/** Makes a stopped server a standby of another when it starts. */
const following = (standby: Cluster, primary: Cluster) =>
  Effect.suspend(() => {
    writeOwn(join(standby.data, "standby.signal"), "")
    return standby.start({ primary_conninfo: `host=${primary.socket} user=byok` })
  })

/** With synchronous replication the primary answers after the standby has written. */
export const newPair = Effect.fnUntraced(function* (synchronous: boolean) {
  const primary = yield* newCluster()
  const standby = yield* copyOf(primary)
  yield* primary.start(synchronous ? { synchronous_standby_names: "*" } : {})
  const follow = following(standby, primary)
  yield* follow
  const followed = primary.query("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
  yield* eventually("the standby follows", followed, (rows) => rows.length === 1)

  let receiver = 0
  const thaw = Effect.sync(() => {
    if (receiver > 0) sendTo(receiver, "SIGCONT")
    receiver = 0
  })
  const freeze = Effect.map(standby.query("SELECT pid FROM pg_stat_wal_receiver"), ([row]) => {
    receiver = Number(row?.["pid"])
    sendTo(receiver, "SIGSTOP")
  })
  yield* Effect.addFinalizer(() => thaw)
  const promote = Effect.asVoid(standby.query("SELECT pg_promote()"))
  return { primary, standby, freeze, thaw, promote, follow, rejoin: following(primary, standby) } satisfies Pair
})
