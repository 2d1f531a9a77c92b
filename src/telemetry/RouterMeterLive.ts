import { Effect, Layer } from "effect"
import { RouterMeter } from "../port/RouterMeter.ts"
import type { FamilyName } from "./families.ts"
import { Meter } from "./Meter.ts"

/** Every series is there from the start: its first event is then a rise. */
const planResults = ["ok", "exhausted", "unknown_workspace", "unavailable"] as const
const leaseResults = [
  "ok",
  "changed",
  "parked",
  "on_trial",
  "altered",
  "unknown_key",
  "unsupported",
  "unavailable",
  "pools_unavailable"
] as const
const exclusionReasons = [
  "disabled",
  "api_key_not_allowed",
  "user_not_allowed",
  "model_not_allowed",
  "region",
  "zdr",
  "seal",
  "parked"
] as const
const pauseCauses = ["rate_limited", "quota_exhausted", "forbidden", "rejected"] as const

export const layer = Layer.effect(
  RouterMeter,
  Effect.map(Meter, ({ counter }) => {
    const eachOf = <Value extends string>(family: FamilyName, attribute: string, values: ReadonlyArray<Value>) => {
      const count = new Map(values.map((value) => [value, counter(family, { [attribute]: value })]))
      return (value: Value) => count.get(value)?.()
    }
    return {
      planned: eachOf("byok.router.plans", "result", planResults),
      leased: eachOf("byok.router.leases", "result", leaseResults),
      excluded: eachOf("byok.router.exclusions", "reason", exclusionReasons),
      parked: eachOf("byok.router.parkings", "cause", pauseCauses)
    }
  })
)
