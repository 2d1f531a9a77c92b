import { Effect } from "effect"
import { makeMeter, memoize } from "../port/Meter.ts"

/** A request that was answered, or that its client abandoned. */
interface MeteredRequest {
  readonly method: string
  /** The template of its route, or `unmatched`. */
  readonly route: string
  readonly status: number
  readonly seconds: number
}

/** Measures what the HTTP server is asked. */
export interface RequestMeter {
  readonly began: () => void
  readonly ended: (request: MeteredRequest) => void
}

/** For a server whose requests are no series. */
export const unmetered: RequestMeter = { began: () => {}, ended: () => {} }

const methods = new Set(["GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS", "CONNECT", "TRACE"])

/** A client may use any method that Node.js knows. */
const methodOf = (method: string) => (methods.has(method) ? method : "_OTHER")

export const makeRequestMeter = Effect.map(makeMeter, ({ gauge, histogram }): RequestMeter => {
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
    ended: ({ method, route, seconds, status }) => {
      active -= 1
      recordOf(route)(methodOf(method))(status)(seconds)
    }
  }
})
