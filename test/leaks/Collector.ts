import { createServer } from "node:http"
import { Effect } from "effect"
import { listening } from "../support/database/listen.ts"

/** A collector of OpenTelemetry: takes whatever is sent to it, by whatever path, and keeps it as one text. */
export const startCollector = Effect.suspend(() => {
  let text = ""
  const server = createServer((request, response) => {
    text += `${request.method} ${request.url} ${request.rawHeaders.join(" ")}\n`
    request.setEncoding("utf8").on("data", (part: string) => (text += part))
    request.once("end", () => response.end())
  })
  return Effect.map(listening(server), (port) => ({ url: `http://127.0.0.1:${port}`, received: () => text }))
})
