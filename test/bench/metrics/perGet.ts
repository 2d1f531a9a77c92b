import { Effect, Layer } from "effect"
import { routeOf } from "../../../src/http/KnownRoutes.ts"
import { DatabaseMeter } from "../../../src/port/DatabaseMeter.ts"
import { RequestMeter } from "../../../src/port/RequestMeter.ts"
import * as Meters from "../../../src/telemetry/Meters.ts"
import { seededId } from "../Bed.ts"

const times = 1_000_000

/** Microseconds of CPU that the meters of a get take, for one that shares its statement with nobody. */
export const perGet = Effect.gen(function* () {
  const { began, ended } = yield* RequestMeter
  const { batched, ran, waited } = (yield* DatabaseMeter)("reads")
  const url = `/api/v1/byok/${seededId(1)}`
  const once = () => {
    const start = performance.now()
    began()
    waited((performance.now() - start) / 1000)
    batched("api_keys.find_with_credential", 1)
    const asked = performance.now()
    ran("api_keys.find_with_credential", (performance.now() - asked) / 1000, undefined)
    const route = routeOf("GET", url) ?? "unmatched"
    ended({ method: "GET", route, status: 200, seconds: (performance.now() - start) / 1000 })
  }
  for (let n = 0; n < times; n++) once()
  const before = process.cpuUsage()
  for (let n = 0; n < times; n++) once()
  const { system, user } = process.cpuUsage(before)
  return (system + user) / times
}).pipe(Effect.provide(Layer.fresh(Meters.layer)), Effect.scoped)
