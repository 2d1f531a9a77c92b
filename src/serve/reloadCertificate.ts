import { Effect, Layer, Queue } from "effect"
import type { Certificate } from "../http/Certificate.ts"
import { CertificateInUse } from "../http/CertificateInUse.ts"
import type { InvalidSetting } from "../wiring/Settings.ts"

/** Reads the certificate again on every SIGHUP. One that cannot be used changes nothing. */
export const reloadCertificate = (sighups: Queue.Dequeue<true>, read: Effect.Effect<Certificate, InvalidSetting>) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { replace } = yield* CertificateInUse
      const reload = read.pipe(
        Effect.flatMap(replace),
        Effect.andThen(Effect.logInfo("Certificate reloaded")),
        Effect.catchTag("InvalidSetting", ({ message }) => Effect.logError(`Certificate not reloaded. ${message}`))
      )
      yield* Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(sighups), reload)))
    })
  )
