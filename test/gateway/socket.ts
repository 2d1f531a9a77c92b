import { request } from "node:http"
import { join } from "node:path"
import { Effect, Layer } from "effect"
import * as GatewayServer from "../../src/gateway/GatewayServer.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

/** Sends a request over a socket for gateways. */
export const ask = (socketPath: string, method: string, path: string, body?: object, given: object = {}) =>
  Effect.promise(
    () =>
      new Promise<{ status: number; text: string; replayed: boolean }>((resolve, reject) => {
        const headers = { "content-type": "application/json", ...given }

        const sent = request({ socketPath, method, path, headers, agent: false }, (response) => {
          let text = ""
          response.on("data", (part: Buffer) => (text += part.toString()))
          response.once("end", () => {
            const replayed = response.headers["idempotent-replayed"] === "true"
            resolve({ status: response.statusCode ?? 0, text, replayed })
          })
        })
        sent.once("error", reject).end(body === undefined ? undefined : JSON.stringify(body))
      })
  )

/** A gateway's socket of the test's service, until the scope closes. */
export const listening = (path: string) => Layer.build(Layer.fresh(GatewayServer.layer(serverSettings, path)))

/** A path for a socket, in a temporary directory. */
export const socketPath = Effect.map(temporaryDirectory, (directory) => join(directory, "gateway.sock"))

/** A target that only its own keys serve. */
export const own = { provider: "azure", endpoint: { shared: false } }
