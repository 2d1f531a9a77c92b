import { assert } from "@effect/vitest"
import { createServer } from "node:http"
import { Effect } from "effect"

/** A collector of OpenTelemetry: takes whatever is sent to it, by whatever path, and keeps it as one text. */
export const startCollector = Effect.map(
  Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly received: () => string; readonly close: () => void }>((resume) => {
      let text = ""
      const server = createServer((request, response) => {
        text += `${request.method} ${request.url} ${request.rawHeaders.join(" ")}\n`
        request.setEncoding("utf8").on("data", (part: string) => (text += part))
        request.once("end", () => response.end())
      }).listen(0, "127.0.0.1", () => {
        const address = server.address()
        assert(typeof address === "object" && address !== null)
        const close = () => {
          server.close()
          server.closeAllConnections()
        }
        resume(Effect.succeed({ url: `http://127.0.0.1:${address.port}`, received: () => text, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  ),
  ({ received, url }) => ({ received, url })
)
