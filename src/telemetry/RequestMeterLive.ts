import { Effect, Layer } from "effect"
import { RequestMeter } from "../port/RequestMeter.ts"
import { eachOnce } from "./eachOnce.ts"
import { Meter } from "./Meter.ts"

const methods = new Set(["GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS", "CONNECT", "TRACE"])

/** A client may use any method that Node.js knows. */
const methodOf = (method: string) => (methods.has(method) ? method : "_OTHER")

export const layer = Layer.effect(
  RequestMeter,
  Effect.map(Meter, ({ gauge, histogram }) => {
    let active = 0
    gauge("http.server.active_requests", {}, () => active)
    const recordOf = eachOnce((route: string) =>
      eachOnce((method: string) =>
        eachOnce((status: number) =>
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
)
