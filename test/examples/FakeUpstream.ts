import { createServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect } from "effect"

/** An upstream that answers by the key of the request. */
export const fakeUpstream = (answer: (key: string, response: ServerResponse) => void) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<{ readonly url: string; readonly keys: Array<string>; readonly close: () => void }>((resume) => {
        const keys: Array<string> = []
        const server = createServer((request, response) => {
          const key = (request.headers.authorization ?? "").replace("Bearer ", "")
          keys.push(key)
          request.resume().once("end", () => answer(key, response))
        }).listen(0, "127.0.0.1", () => {
          const { port } = server.address() as AddressInfo
          const close = () => {
            server.closeAllConnections()
            server.close()
          }
          resume(Effect.succeed({ url: `http://127.0.0.1:${port}/`, keys, close }))
        })
      }),
      ({ close }) => Effect.sync(close)
    ),
    ({ keys, url }) => ({
      url,
      /** The keys that it has seen since the last call, in order. */
      seen: () => keys.splice(0)
    })
  )
