import { Clock, Effect, Layer, Option, References } from "effect"
import { AuditLog } from "../port/AuditLog.ts"

/** The newest hash is logged once in so many milliseconds: where logs are kept elsewhere, a rewritten chain is found. */
const telling = 60_000

/** Seals what was recorded, every second, and untraced. */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { seal } = yield* AuditLog
    let told: string | undefined
    let next = 0
    let failing = false

    const tell = Effect.fnUntraced(function* () {
      const head = yield* seal(2000)
      failing = false
      const now = yield* Clock.currentTimeMillis
      if (Option.isNone(head) || head.value.hash === told || now < next) return
      told = head.value.hash
      next = now + telling
      yield* Effect.logInfo(`Audit entries are sealed up to ${head.value.last_seq}, with hash ${head.value.hash}`)
    })
    const attempt = Effect.catchCause(tell(), (cause) => {
      const first = !failing
      failing = true
      return first ? Effect.logWarning("Audit entries cannot be sealed now", cause) : Effect.void
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
