import { Effect, Layer } from "effect"
import { Draining } from "../port/Draining.ts"
import { KeyringReload } from "../port/KeyringReload.ts"
import { Readiness } from "../port/Readiness.ts"
import { snapshotOf } from "../telemetry/Snapshot.ts"
import { Management, ReloadRefused } from "./Management.ts"
import { reloadAndLog } from "./reloadAndLog.ts"

/** Manages the process that it runs in. */
export const layer = Layer.effect(
  Management,
  Effect.gen(function* () {
    const context = yield* Effect.context<KeyringReload>()
    const readiness = yield* Readiness
    const isDraining = yield* Draining
    return {
      snapshot: Effect.sync(() => snapshotOf(context)),
      condition: Effect.suspend(() =>
        isDraining()
          ? Effect.succeed({ problems: ["the service is stopping"], warnings: [] })
          : Effect.all(readiness, { concurrency: 2 })
      ),
      reload: reloadAndLog.pipe(
        Effect.provideContext(context),
        Effect.map(({ kek_ids }) => ({ kek_ids, processes: 1 })),
        Effect.catchTag("KeyringNotReloaded", ({ message }) =>
          Effect.fail(new ReloadRefused({ reason: message, reloaded: 0, processes: 1 }))
        )
      )
    }
  })
)
