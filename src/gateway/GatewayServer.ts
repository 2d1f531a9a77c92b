import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentPrincipal } from "../domain/Principal.ts"
import * as Envelope from "../http/Envelope.ts"
import { listenOnSocket, type SocketSettings } from "../http/listenOnSocket.ts"
import * as RequestDecodingLive from "../http/RequestDecodingLive.ts"
import { AccessLog } from "../http/traceAndLog.ts"
import * as Routing from "../http/Routing.ts"
import { serveRoutes } from "../http/Server.ts"
import { GatewayApi } from "../contract/GatewayApi.ts"
import * as Handlers from "./Handlers.ts"

/** Serves the HTTP API of gateways on a Unix socket that only the user and group of this process may open. */
export const layer = (settings: SocketSettings, path: string) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const server = yield* listenOnSocket(settings, "BYOK_GATEWAY_SOCKET", path)
      yield* Effect.provideService(serveRoutes(server), CurrentPrincipal, { kind: "gateway" })
      yield* Effect.logInfo(`Gateways are served on ${path}`)
    })
  ).pipe(
    Layer.provide(routes),
    Layer.provide(Routing.layer(Routing.makeRouting(isSafe))),
    Layer.provide(NodeHttpServer.layerHttpServices),
    Layer.provide(Handlers.layer),
    Layer.provide(RequestDecodingLive.layer),
    Layer.provide(Layer.succeed(AccessLog, settings.accessLog))
  )

const routes = Layer.merge(
  HttpApiBuilder.layer(GatewayApi, { openapiPath: "/openapi.json" }),
  Layer.fresh(Envelope.layer)
)

/** Whether repeating a request does no harm: of POSTs, only those of attempts and reports. */
const isSafe = (method: string, path: string) => method !== "POST" || path === "/v1/attempts" || path === "/v1/reports"
