import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Effect, Layer } from "effect"
import { CurrentPrincipal } from "../domain/Principal.ts"
import * as Envelope from "../http/Envelope.ts"
import { listenOnSocket, type SocketSettings } from "../http/listenOnSocket.ts"
import * as Routing from "../http/Routing.ts"
import { serveRoutes } from "../http/Server.ts"
import { AccessLog } from "../http/traceAndLog.ts"
import * as Handlers from "./Handlers.ts"

/** Serves proxies on a Unix socket of their own, which manages nothing. */
export const layer = (settings: SocketSettings, path: string) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const server = yield* listenOnSocket(settings, "BYOK_FORWARD_SOCKET", path)
      yield* Effect.provideService(serveRoutes(server), CurrentPrincipal, { kind: "gateway" })
      yield* Effect.logInfo(`Proxies are served on ${path}`)
    })
  ).pipe(
    Layer.provide(Layer.merge(Handlers.layer, Layer.fresh(Envelope.layer))),
    Layer.provide(Routing.layer(Routing.makeRouting(() => true))),
    Layer.provide(NodeHttpServer.layerHttpServices),
    Layer.provide(Layer.succeed(AccessLog, settings.accessLog))
  )
