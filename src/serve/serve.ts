import { readFileSync } from "node:fs"
import { Duration, Effect, Layer, Option, Queue } from "effect"
import type { HttpServerError } from "effect/http"
import * as Byok from "../wiring/Byok.ts"
import * as ForwardServer from "../forward/ForwardServer.ts"
import * as GatewayServer from "../gateway/GatewayServer.ts"
import { canCut } from "../http/ParserCut.ts"
import * as Server from "../http/Server.ts"
import * as LinksServer from "../links/LinksServer.ts"
import * as ManagementServer from "../management/ManagementServer.ts"
import { Draining } from "../port/Readiness.ts"
import { readCertificate } from "../wiring/Certificates.ts"
import { InvalidSetting, refuse } from "../wiring/Environment.ts"
import type { Settings } from "../wiring/Settings.ts"
import * as TelemetryLive from "../wiring/TelemetryLive.ts"
import { welcome } from "./welcome.ts"
import type { Certificate } from "../http/makeNodeServer.ts"
import { CertificateInUse } from "../http/Server.ts"
import { KeyringReload } from "../port/KekRegistry.ts"
import { isLoopback } from "../port/Links.ts"
import { makeMeter } from "../runtime/Meter.ts"

type LoadCertificate = Effect.Effect<Certificate, InvalidSetting>

/** Makes the effect that reloads the certificate, and counts and logs the result. */
const makeCertificateReload = Effect.fnUntraced(function* (loadCertificate: LoadCertificate) {
  const { replace } = yield* CertificateInUse
  const { counter } = yield* makeMeter
  const increment = {
    Success: counter("byok.certificate.reloads", { result: "ok" }),
    Failure: counter("byok.certificate.reloads", { result: "failed" })
  }
  return loadCertificate.pipe(
    Effect.flatMap(replace),
    Effect.onExit(({ _tag }) => Effect.sync(increment[_tag])),
    Effect.andThen(Effect.logInfo("Certificate reloaded")),
    Effect.catchTag("InvalidSetting", ({ message }) => Effect.logError(`Certificate not reloaded. ${message}`))
  )
})

/**
 * Listens for SIGHUP at once, so that no signal is lost during startup. The returned layer reloads the keyring and the
 * certificate at each signal. If one of them cannot be reloaded, its current version stays in use.
 */
const reloadOnSighup = Effect.fnUntraced(function* (loadCertificate: Option.Option<LoadCertificate>) {
  const signals = yield* Queue.sliding<true>(1)
  const offer = () => void Queue.offerUnsafe(signals, true)
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("SIGHUP", offer)),
    () => Effect.sync(() => process.off("SIGHUP", offer))
  )
  return Layer.effectDiscard(
    Effect.gen(function* () {
      const { reload } = yield* KeyringReload
      const reloadCertificate = Option.isSome(loadCertificate)
        ? yield* makeCertificateReload(loadCertificate.value)
        : Effect.void
      const reloadAll = Effect.andThen(reloadCertificate, Effect.ignoreCause(reload))
      yield* Effect.forkScoped(Effect.forever(Effect.andThen(Queue.take(signals), reloadAll)))
    })
  )
})

/**
 * After a signal to stop, the service is not ready (`isDraining`) but goes on serving for the delay. A second signal
 * ends the delay.
 */
const makeDrain = Effect.fnUntraced(function* (delay: Duration.Duration) {
  let signals = 0
  let endDelay = () => {}
  const onSignal = () => {
    signals += 1
    if (signals > 1) endDelay()
  }
  // Runs before the listener that interrupts the program, so that the finalizer below sees the signal.
  yield* Effect.acquireRelease(
    Effect.sync(() => process.prependListener("SIGTERM", onSignal).prependListener("SIGINT", onSignal)),
    () => Effect.sync(() => process.off("SIGTERM", onSignal).off("SIGINT", onSignal))
  )
  const wait = Effect.callback((resume: (result: Effect.Effect<void>) => void) => {
    const finish = () => resume(Effect.void)
    // No signal: the service stops for another reason. Two signals: the operator does not want the delay.
    if (signals !== 1) return finish()
    const timer = setTimeout(finish, Duration.toMillis(delay))
    endDelay = () => {
      clearTimeout(timer)
      finish()
    }
  })
  return {
    isDraining: () => signals > 0,
    /** Waits for the delay when it stops. Provide the server to it, so that the server stops only afterwards. */
    layer: Layer.effectDiscard(Effect.addFinalizer(() => wait))
  }
})

const warnOfPlainHttp = ({ host, tls }: Settings) =>
  Option.isSome(tls) || isLoopback(host)
    ? Effect.void
    : Effect.logWarning(
        "HOST is reachable from other machines and HTTP is not encrypted, so keys can be read on the network: put a TLS terminator in front, or set TLS_CERT_FILE and TLS_KEY_FILE"
      )

/**
 * Warns if Linux resets the connections that a stopping instance has not accepted yet. With `tcp_migrate_req`, Linux
 * passes them to another instance on the same port.
 */
const warnOfResets = ({ reusePort }: Settings) =>
  Effect.gen(function* () {
    if (!reusePort) return
    const value = yield* Effect.option(Effect.try(() => readFileSync("/proc/sys/net/ipv4/tcp_migrate_req", "utf8")))
    if (Option.contains(value, "0\n")) {
      yield* Effect.logWarning(
        "net.ipv4.tcp_migrate_req is 0, so new connections may be reset when an instance stops: set it to 1"
      )
    }
  })

/** Turns an error of listening into a refusal that names the setting to change; returns other errors unchanged. */
const listenError = ({ host, port, reusePort }: Settings, error: HttpServerError.ServeError) => {
  const refusal = (message: string) => new InvalidSetting({ message })
  switch (Reflect.get(Object(error.cause), "code")) {
    case "EADDRINUSE":
      return reusePort
        ? refusal(`Port ${port} on ${host} is in use by a process of another user or without BYOK_REUSE_PORT=true.`)
        : refusal(`Port ${port} on ${host} is in use: set PORT, e.g. PORT=${port < 65535 ? port + 1 : 3000}.`)
    case "ENOTFOUND":
    case "EAI_AGAIN":
    case "EADDRNOTAVAIL":
      return refusal("HOST must be an address of this machine, or a name of one.")
    case "ENOTSUP":
      return refusal("BYOK_REUSE_PORT must be false: this operating system does not let processes share a port.")
    default:
      return error
  }
}

/** The server for metrics, health details and keyring reload; empty if the settings have no management port. */
export const managementPort = (settings: Settings) =>
  Option.match(settings.management, {
    onNone: () => Layer.empty,
    onSome: (address) =>
      ManagementServer.layer({ ...settings, ...address }).pipe(
        Layer.catchTag("ServeError", () =>
          Layer.effectDiscard(
            refuse("BYOK_MANAGEMENT_HOST and BYOK_MANAGEMENT_PORT must be an address that is free to listen on.")
          )
        )
      )
  })

/** The servers on Unix sockets, for gateways and for proxies; empty without their settings. */
const sockets = (settings: Settings) => {
  const serveOn = (path: Settings["gatewaySocket"], { layer }: typeof GatewayServer | typeof ForwardServer) =>
    Option.match(path, {
      onNone: () => Layer.empty,
      onSome: (path) =>
        layer(settings, path).pipe(
          Layer.catchTag("SocketRefused", ({ message }) => Layer.effectDiscard(refuse(message)))
        )
    })
  return Layer.merge(serveOn(settings.gatewaySocket, GatewayServer), serveOn(settings.forwardSocket, ForwardServer))
}

/** The whole service. Its layers stop from top to bottom. With `json`, it prints its address as JSON. */
export const serve = (settings: Settings, json = false) =>
  Layer.unwrap(
    Effect.gen(function* () {
      if (!canCut()) {
        return yield* refuse(
          `Node.js ${process.version} parses HTTP unlike the versions that byok supports: use 22 or 24.`
        )
      }
      const loadCertificate = Option.map(settings.tls, readCertificate)
      const reloads = yield* reloadOnSighup(loadCertificate)
      const certificate = Option.isSome(loadCertificate) ? yield* loadCertificate.value : undefined
      yield* warnOfResets(settings)
      const drain = yield* makeDrain(settings.drainDelay)
      const server = Server.layer(settings, certificate, LinksServer.layer).pipe(
        Layer.catchTag("ServeError", (error) => Layer.effectContext(Effect.fail(listenError(settings, error))))
      )
      return Layer.mergeAll(
        welcome(settings, json),
        Layer.effectDiscard(warnOfPlainHttp(settings)),
        reloads,
        drain.layer
      ).pipe(
        Layer.provide(server),
        Layer.provideMerge(Layer.merge(managementPort(settings), sockets(settings))),
        Layer.provide(TelemetryLive.metrics(settings)),
        Layer.provide(Layer.succeed(Draining, drain.isDraining)),
        Layer.provide(Byok.layerWith(settings)),
        Layer.provide(TelemetryLive.traces(settings))
      )
    })
  )
