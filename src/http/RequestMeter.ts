import { Effect } from "effect"
import { makeMeter, memoize } from "../port/Meter.ts"

const methods = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"])

/** The methods that have a meaning in HTTP; others are not repeated. */
export const methodOf = (method: string) => (methods.has(method) ? method : "_OTHER")

/** Measures requests, from when they begin until they are answered or their clients abandon them. */
export const makeRequestMeter = Effect.map(makeMeter, ({ gauge, histogram }) => {
  let active = 0
  gauge("http.server.active_requests", {}, () => active)
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
  return {
    began: () => void (active += 1),
    /** The template of the route is undefined if it is unknown. */
    ended: (method: string, route: string | undefined, status: number, seconds: number) => {
      active -= 1
      recordOf(route ?? "unmatched")(methodOf(method))(status)(seconds)
    }
  }
})

export type RequestMeter = Effect.Success<typeof makeRequestMeter>
