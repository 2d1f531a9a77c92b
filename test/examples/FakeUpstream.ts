import { createServer, type ServerResponse } from "node:http"
import { Effect } from "effect"
import { listening } from "../support/database/listen.ts"

/** An upstream that answers by the key of the request. */
export const fakeUpstream = (answer: (key: string, response: ServerResponse) => void) =>
  Effect.suspend(() => {
    const keys: Array<string> = []
    const server = createServer((request, response) => {
      const key = (request.headers.authorization ?? "").replace("Bearer ", "")
      keys.push(key)
      request.resume().once("end", () => answer(key, response))
    })
    return Effect.map(listening(server), (port) => ({
      url: `http://127.0.0.1:${port}/`,
      /** Returns the keys received since the last call, in order. */
      seen: () => keys.splice(0)
    }))
  })
