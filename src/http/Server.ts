import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Duration, Effect, Layer, Logger, References, Scope, Tracer } from "effect"
import { HttpRouter } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { Api } from "../api/Api.ts"
import { ApiKeys } from "../port/ApiKeys.ts"
import { Credentials } from "../port/Credentials.ts"
import { RequestTimeout } from "../port/Deadline.ts"
import { QueueLimit } from "../port/QueueLimit.ts"
import { Readiness } from "../port/Readiness.ts"
import type { Certificate } from "./Certificate.ts"
import * as CertificateInUse from "./CertificateInUse.ts"
import type { ServerSettings } from "./ServerSettings.ts"
import * as AuthenticationLive from "./AuthenticationLive.ts"
import * as Docs from "./docs/Docs.ts"
import * as Envelope from "./Envelope.ts"
import * as Handlers from "./Handlers.ts"
import * as Health from "./Health.ts"
import * as JsonBodyLive from "./JsonBodyLive.ts"
import { routerConfig } from "./KnownRoutes.ts"
import { makeNodeServer } from "./makeNodeServer.ts"
import * as ResourcePathLive from "./ResourcePathLive.ts"
import { Turns } from "./Turns.ts"

/** All routes, for any HTTP server. */
const routes = Layer.mergeAll(
  HttpApiBuilder.layer(Api, { openapiPath: "/openapi.json" }),
  Docs.layer,
  Health.layer,
  Envelope.layer
)

/** The contract implemented over `Credentials` and `ApiKeys`. */
const implementation = Handlers.layer.pipe(
  Layer.provideMerge(Layer.mergeAll(AuthenticationLive.layer, JsonBodyLive.layer, ResourcePathLive.layer)),
  Layer.provide(Turns.layer)
)

/** The only services that the routes use. */
const used = Context.pick(
  ApiKeys,
  Credentials,
  Readiness,
  QueueLimit,
  RequestTimeout,
  Scope.Scope,
  Tracer.Tracer,
  Logger.CurrentLoggers,
  Logger.LogToStderr,
  References.MinimumLogLevel,
  References.TracerEnabled
)

/** Builds a layer with nothing but `used` in its context, because every request copies that context. */
const withUsedOnly = <A, E, R>(layer: Layer.Layer<A, E, R>): Layer.Layer<A, E, R> =>
  Layer.effectContext(
    Effect.flatMap(Effect.scope, (scope) => Layer.buildWithScope(layer, scope)).pipe(
      Effect.updateContext((context: Context.Context<R | Scope.Scope>) => used(context) as typeof context)
    )
  )

/** Listens once everything the routes need is built, and stops before any of it is released; with a certificate, HTTPS. */
export const layer = (settings: ServerSettings, certificate?: Certificate) =>
  Layer.suspend(() => {
    const server = makeNodeServer(settings, certificate)
    const { host, port } = settings
    return HttpRouter.serve(routes, { disableLogger: true, disableListenLog: true, routerConfig }).pipe(
      Layer.provideMerge(
        NodeHttpServer.layer(() => server, { host, port, gracefulShutdownTimeout: Duration.seconds(20) })
      ),
      Layer.merge(CertificateInUse.layer(server)),
      Layer.provide(implementation),
      withUsedOnly
    )
  })
