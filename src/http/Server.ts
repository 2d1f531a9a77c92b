import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { X509Certificate } from "node:crypto"
import type { ListenOptions } from "node:net"
import { Server as TlsServer } from "node:tls"
import { Console, Context, type Duration, Effect, Layer, Logger, References, Scope, Tracer } from "effect"
import { HttpMiddleware, HttpRouter, HttpServer, HttpServerError } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { NetAddress } from "effect/net"
import { Api } from "../contract/TenantsApi.ts"
import { CurrentPrincipal } from "../domain/Principal.ts"
import { makeMeter } from "../runtime/Meter.ts"
import * as AuthenticationLive from "./AuthenticationLive.ts"
import * as Docs from "./Docs.ts"
import * as Envelope from "./Envelope.ts"
import * as Handlers from "./Handlers.ts"
import * as Health from "./Health.ts"
import { type Certificate, type LimitedServer, makeNodeServer, type ServerLimits } from "./makeNodeServer.ts"
import * as RequestDecodingLive from "./RequestDecodingLive.ts"
import { makeRequestMeter } from "./RequestMeter.ts"
import * as Routing from "./Routing.ts"
import { RequestQueues } from "../runtime/FairQueue.ts"
import { AccessLog } from "./traceAndLog.ts"

/** The address of a server, its access log, and the limits for its clients. */
export interface ServerSettings extends ServerLimits {
  readonly host: string
  readonly port: number
  /** Whether other processes may listen on the same port; the kernel shares the connections among them. */
  readonly reusePort: boolean
  /** Whether each request is logged. */
  readonly accessLog: boolean
}

/** The certificate of the running server; unused over plain HTTP. */
export class CertificateInUse extends Context.Service<
  CertificateInUse,
  {
    /** New connections get the new certificate, open ones keep theirs. */
    readonly replace: (certificate: Certificate) => Effect.Effect<void>
  }
>()("byok/CertificateInUse") {}

const routes = Layer.mergeAll(
  HttpApiBuilder.layer(Api, { openapiPath: "/openapi.json" }),
  Docs.layer,
  // Each router needs an envelope of its own.
  Layer.fresh(Envelope.layer)
)

/** The handlers of the contract, with its authentication and its decoding of requests. */
const implementation = Layer.merge(Handlers.layer, Health.layer).pipe(
  Layer.provideMerge(Layer.merge(AuthenticationLive.layer, RequestDecodingLive.layer))
)

/** Maximum connections that wait to be accepted; the kernel may allow fewer. Further clients retry after a second. */
const backlog = 4096

/** Listens until the scope closes, and begins to answer with `serve`, which ends within `gracefulShutdown`. */
export const listen = Effect.fnUntraced(function* (
  { answerWith, close, server }: LimitedServer,
  options: ListenOptions,
  gracefulShutdown: Duration.Input
) {
  const closed = yield* Effect.cached(Effect.callback<undefined>((resume) => close(() => resume(Effect.undefined))))
  const listening = Effect.callback<undefined, HttpServerError.ServeError>((resume) => {
    const onError = (cause: Error) => resume(Effect.fail(new HttpServerError.ServeError({ cause })))
    server.once("error", onError).listen({ backlog, ...options }, () => {
      server.off("error", onError)
      resume(Effect.undefined)
    })
  })
  // Uninterruptible: closing the scope before Node listens would not stop the server.
  yield* Effect.acquireRelease(listening, () => closed)
  const address = yield* addressOf(server.address())
  return HttpServer.make({
    address,
    serve: Effect.fnUntraced(function* (app, middleware) {
      const requests = yield* Scope.fork(yield* Effect.scope, "parallel")
      const handler = yield* NodeHttpServer.makeHandler(app, { middleware: middleware as never, scope: requests })
      yield* Effect.addFinalizer(() =>
        Effect.timeoutOrElse(closed, { duration: gracefulShutdown, orElse: () => Effect.void })
      )
      answerWith(handler)
    })
  })
})

const addressOf = (address: ReturnType<LimitedServer["server"]["address"]>) =>
  typeof address === "string"
    ? Effect.succeed(NetAddress.unixPathAddress(address))
    : Effect.fromResult(NetAddress.inetAddressFromIpString(address?.address ?? "", address?.port ?? 0)).pipe(
        Effect.mapError((cause) => new HttpServerError.ServeError({ cause }))
      )

/** Picks the services that requests get from the server's context: few, because every request copies them. */
const pickRequestServices = Context.pick(
  Scope.Scope,
  CurrentPrincipal,
  Tracer.Tracer,
  Console.Console,
  Logger.CurrentLoggers,
  Logger.LogToStderr,
  References.MinimumLogLevel,
  References.TracerEnabled
)

/** Serves the routes of the router in the context. */
export const serveRoutes = Effect.fnUntraced(function* ({ serve }: HttpServer.HttpServer["Service"]) {
  const router = yield* HttpRouter.HttpRouter
  yield* serve(router.asHttpEffect()).pipe(
    Effect.updateContext((context: Context.Context<Scope.Scope>) =>
      // Keeps Effect from tracing requests: the envelope traces them, because it knows their ids.
      Context.add(pickRequestServices(context), HttpMiddleware.TracerDisabledWhen, () => true)
    )
  )
})

const serving = Layer.effectDiscard(Effect.flatMap(HttpServer.HttpServer, serveRoutes))

/**
 * Serves the contract and the `furtherRoutes`; with a certificate, over HTTPS. Starts to listen once everything that
 * the routes need is built, and stops before any of it is released.
 */
export const layer = <R = never>(
  settings: ServerSettings,
  certificate?: Certificate,
  furtherRoutes: Layer.Layer<never, never, R | HttpRouter.HttpRouter> = Layer.empty
) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const routing = Routing.makePublicRouting()
      const meter = yield* makeRequestMeter(settings.maxConnections)
      const limited = makeNodeServer(settings, certificate, { meter, routing })
      const { server } = limited
      const { host, port, reusePort } = settings
      let expirySeconds = 0
      const setExpiry = ({ cert }: Certificate) =>
        void (expirySeconds = new X509Certificate(cert).validToDate.getTime() / 1000)
      if (certificate !== undefined) {
        setExpiry(certificate)
        const { gauge } = yield* makeMeter
        gauge("byok.certificate.expiry.time", {}, () => expirySeconds)
      }
      return serving.pipe(
        Layer.provide(Layer.merge(routes, furtherRoutes)),
        Layer.provide(Routing.layer(routing)),
        Layer.provideMerge(
          Layer.effect(HttpServer.HttpServer, listen(limited, { host, port, reusePort }, "20 seconds"))
        ),
        Layer.provide(NodeHttpServer.layerHttpServices),
        Layer.merge(
          Layer.succeed(CertificateInUse, {
            replace: (certificate) =>
              Effect.sync(() => {
                if (server instanceof TlsServer) server.setSecureContext({ ...certificate, minVersion: "TLSv1.2" })
                setExpiry(certificate)
              })
          })
        ),
        Layer.provide(implementation),
        Layer.provide(Layer.succeed(AccessLog, settings.accessLog))
      )
    })
  ).pipe(Layer.provide(RequestQueues.layer))
