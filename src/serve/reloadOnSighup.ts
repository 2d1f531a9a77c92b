import { Effect, Layer, Option, Queue } from "effect"
import type { Certificate } from "../http/makeNodeServer.ts"
import { CertificateInUse } from "../http/Server.ts"
import { KeyringReload } from "../port/KeyringReload.ts"
import { makeMeter } from "../port/Meter.ts"
import type { InvalidSetting } from "../wiring/Settings.ts"

const makeCertificateReload = Effect.fnUntraced(function* (read: Effect.Effect<Certificate, InvalidSetting>) {
  const { replace } = yield* CertificateInUse
  const { counter } = yield* makeMeter
  const counts = {
    Success: counter("byok.certificate.reloads", { result: "ok" }),
    Failure: counter("byok.certificate.reloads", { result: "failed" })
  }
  return read.pipe(
    Effect.flatMap(replace),
    Effect.onExit(({ _tag }) => Effect.sync(counts[_tag])),
    Effect.andThen(Effect.logInfo("Certificate reloaded")),
    Effect.catchTag("InvalidSetting", ({ message }) => Effect.logError(`Certificate not reloaded. ${message}`))
  )
})

/** Reloads keyring and certificate on each SIGHUP; what cannot be reloaded stays. Requests finish with their keys. */
export const reloadOnSighup = Effect.fnUntraced(function* (
  certificate: Option.Option<Effect.Effect<Certificate, InvalidSetting>>
) {
  const signals = yield* Queue.sliding<true>(1)
  const offer = () => void Queue.offerUnsafe(signals, true)
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("SIGHUP", offer)),
    () => Effect.sync(() => process.off("SIGHUP", offer))
  )
  return Layer.effectDiscard(
    Effect.gen(function* () {
      const { reload } = yield* KeyringReload
      const reloadCertificate = Option.isSome(certificate)
        ? yield* makeCertificateReload(certificate.value)
        : Effect.void
      const reloadAll = Effect.andThen(reloadCertificate, Effect.ignoreCause(reload))
      yield* Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(signals), reloadAll)))
    })
  )
})
