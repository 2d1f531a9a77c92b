import { join } from "node:path"
import { Effect, Layer } from "effect"
import * as GatewayServer from "../../src/gateway/GatewayServer.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { json, send } from "../support/http/HttpProbe.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

/** Sends a request over a socket for gateways. */
export const ask = (
  socket: string,
  method: string,
  path: string,
  body?: object,
  more: Readonly<Record<string, string>> = {}
) =>
  Effect.map(
    send(socket, {
      method,
      path,
      headers: [json, ...Object.entries(more)],
      body: body === undefined ? undefined : JSON.stringify(body)
    }),
    ({ body: text, headers, status }) => ({ status, text, replayed: headers["idempotent-replayed"] === "true" })
  )

/** A gateway's socket of the test's service, until the scope closes. */
export const listening = (path: string) => Layer.build(Layer.fresh(GatewayServer.layer(serverSettings, path)))

/** A path for a socket, in a temporary directory. */
export const socketPath = Effect.map(temporaryDirectory, (directory) => join(directory, "gateway.sock"))

/** The path of such a socket that is open until the scope closes. */
export const openSocket = Effect.tap(socketPath, listening)

/** A target that only its own keys serve. */
export const own = { provider: "azure", endpoint: { shared: false } }
