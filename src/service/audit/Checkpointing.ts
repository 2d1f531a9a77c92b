import { Clock, Effect, Layer, Option } from "effect"
import { AuditLog, countLimit, formatCount } from "../../port/AuditLog.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"

/** How long a seal waits for earlier writers of entries, in milliseconds. */
const sealTimeout = 2000

/** Minimum interval between logged hashes, in milliseconds. */
const logInterval = 60_000

/** Time without a new checkpoint after which unsealed entries are counted, and counted again, in milliseconds. */
const stalledAfter = 60_000

/** Seals new audit entries every second. At debug level, logs hashes: copies elsewhere expose a rewritten chain. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { seal, countUnsealed } = yield* AuditLog
    let loggedHash: string | undefined
    let nextLogAt = 0
    let lastSealedSeq = 0n
    let nextCountAt = 0
    let hadUnsealed = false
    let hasWarned = false

    /** Warns once if entries are unsealed in two counts without a checkpoint between, as behind an open transaction. */
    const warnIfStalled = Effect.fnUntraced(function* (last_seq: bigint, now: number) {
      if (last_seq !== lastSealedSeq || nextCountAt === 0) {
        lastSealedSeq = last_seq
        nextCountAt = now + stalledAfter
        hadUnsealed = hasWarned = false
      }
      if (hasWarned || now < nextCountAt) return
      nextCountAt = now + stalledAfter
      const unsealed = yield* countUnsealed(countLimit + 1)
      hasWarned = hadUnsealed && unsealed > 0
      hadUnsealed = unsealed > 0
      if (!hasWarned) return
      yield* Effect.logWarning(
        `Audit entries have waited to be sealed for more than a minute, ${formatCount(unsealed)} after ${last_seq}: a transaction that does not end is in the way`
      )
    })

    const sealAndLog = Effect.fnUntraced(function* () {
      const head = yield* seal(sealTimeout)
      const now = yield* Clock.currentTimeMillis
      yield* warnIfStalled(Option.isSome(head) ? head.value.last_seq : 0n, now)
      if (Option.isNone(head) || head.value.hash === loggedHash || now < nextLogAt) return
      loggedHash = head.value.hash
      nextLogAt = now + logInterval
      yield* Effect.logDebug(`Audit entries are sealed up to ${head.value.last_seq}, with hash ${head.value.hash}`)
    })
    yield* repeatInBackground("1 second", sealAndLog(), "Audit entries could not be sealed")
  })
)
