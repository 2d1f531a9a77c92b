import { Effect } from "effect"
import { makeMeter, memoize } from "../runtime/Meter.ts"

/** The methods of HTTP, in the order in which `Allow` lists them. */
export const methods: ReadonlySet<string> = new Set(
  "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT QUERY".split(" ")
)

/** The method for series and spans: `_OTHER` if it is not one of HTTP, to bound the number of series. */
export const methodOf = (method: string) => (methods.has(method) ? method : "_OTHER")

/** The status of a request whose client left before its answer, as in nginx. Only series and logs have it. */
export const clientGone = 499

/** Makes a function that records how long a request took. `route` is its template; undefined if it has none. */
const makeDurations = Effect.map(makeMeter, ({ histogram }) => {
  const recordOf = memoize((route: string) =>
    memoize((method: string) =>
      memoize((status: number) =>
        histogram("http.server.request.duration", {
          "http.request.method": method,
          "http.route": route,
          "http.response.status_code": String(status)
        })
      )
    )
  )
  return (method: string, route: string | undefined, status: number, seconds: number) =>
    recordOf(route ?? "unmatched")(methodOf(method))(status)(seconds)
})

/** Measures the requests of a Unix socket, whose connections are few and trusted. */
export const makeSocketMeter = Effect.map(makeDurations, (ended): RequestMeter => {
  const nothing = () => undefined
  return { connected: nothing, disconnected: nothing, dropped: nothing, began: nothing, ended }
})

/** Measures connections, and requests until they are answered or their clients leave. */
export const makeRequestMeter = Effect.fnUntraced(function* (maxConnections: number) {
  const { counter, gauge } = yield* makeMeter
  const record = yield* makeDurations
  let active = 0
  let connections = 0
  gauge("byok.http.connections", {}, () => connections)
  gauge("byok.http.connections.limit", {}, () => maxConnections)
  gauge("http.server.active_requests", {}, () => active)
  return {
    connected: () => void (connections += 1),
    disconnected: () => void (connections -= 1),
    dropped: counter("byok.http.connections.dropped"),
    began: () => void (active += 1),
    ended: (method: string, route: string | undefined, status: number, seconds: number): void => {
      active -= 1
      record(method, route, status, seconds)
    }
  }
})

export type RequestMeter = Effect.Success<ReturnType<typeof makeRequestMeter>>
