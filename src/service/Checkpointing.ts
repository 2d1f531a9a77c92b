import { Clock, Effect, Layer, Option, References } from "effect"
import { AuditLog } from "../port/AuditLog.ts"

/** The newest hash is logged at most this often, in milliseconds: logs kept elsewhere then expose a rewritten chain. */
const logInterval = 60_000

/** Seals new audit entries every second, untraced. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { seal } = yield* AuditLog
    let loggedHash: string | undefined
    let nextLogAt = 0
    let failing = false

    const sealAndLog = Effect.fnUntraced(function* () {
      const head = yield* seal(2000)
      failing = false
      const now = yield* Clock.currentTimeMillis
      if (Option.isNone(head) || head.value.hash === loggedHash || now < nextLogAt) return
      loggedHash = head.value.hash
      nextLogAt = now + logInterval
      yield* Effect.logInfo(`Audit entries are sealed up to ${head.value.last_seq}, with hash ${head.value.hash}`)
    })
    const attempt = Effect.catchCause(sealAndLog(), (cause) => {
      const first = !failing
      failing = true
      return first ? Effect.logWarning("Audit entries could not be sealed", cause) : Effect.void
    })
    yield* Effect.forkScoped(
      Effect.provideService(
        Effect.forever(Effect.andThen(Effect.sleep("1 second"), attempt)),
        References.TracerEnabled,
        false
      )
    )
  })
)
