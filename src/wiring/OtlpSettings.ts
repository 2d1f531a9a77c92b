import { Config, Effect, Option, Redacted, Schema } from "effect"
import type { Sampling } from "../telemetry/TracerLive.ts"
import { InvalidSetting } from "./InvalidSetting.ts"
import { keyValuePairs } from "./keyValuePairs.ts"
import { optionalSetting } from "./optionalSetting.ts"
import { secretSetting } from "./secretSetting.ts"
import { readServiceResource, type ServiceResource } from "./ServiceResource.ts"

/** Where one signal is sent, over HTTP as JSON. */
export interface OtlpTarget {
  readonly url: URL
  /** May hold the collector's credentials. */
  readonly headers: Redacted.Redacted<Readonly<Record<string, string>>>
}

/** Telemetry that is pushed to a collector, by the variables that OpenTelemetry defines. */
export interface OtlpSettings {
  readonly resource: ServiceResource
  readonly traces: Option.Option<OtlpTarget>
  readonly metrics: Option.Option<OtlpTarget>
  readonly sampling: Sampling
}

const isHeader = ([name, value]: readonly [string, string]) =>
  /^[!#$%&'*+.^_`|~\w-]+$/.test(name) && /^[\x20-\x7e]*$/.test(value)

const headers = Effect.fnUntraced(function* (name: string) {
  const given = yield* secretSetting(name)
  const pairs = Option.map(given, (text) => keyValuePairs(Redacted.value(text)))
  if (Option.exists(pairs, (found) => found === undefined || !Object.entries(found).every(isHeader))) {
    const expected = "headers such as name=value, separated by commas, their values percent-encoded"
    return yield* new InvalidSetting({ message: `${name} must be ${expected}.` })
  }
  return Option.map(pairs, (found = {}) => Redacted.make(found))
})

const endpoint = (name: string) => {
  const usable = Schema.makeFilter(
    ({ password, protocol, username }: URL) => /^https?:$/.test(protocol) && username + password === ""
  )
  const expected = "an http or https URL without user and password"
  return optionalSetting(name, Config.schema(Schema.URLFromString.check(usable), name), expected)
}

/** The general endpoint may have a path. */
const endpointOf = (signal: string, general: URL) => {
  const url = new URL(general)
  url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/${signal}`
  return url
}

const samplers = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio"
] as const

const sampling = Effect.gen(function* () {
  const given = yield* optionalSetting(
    "OTEL_TRACES_SAMPLER",
    Config.Literals(samplers, "OTEL_TRACES_SAMPLER"),
    `one of ${samplers.join(", ")}`
  )
  const ratio = Schema.NumberFromString.check(Schema.isBetween({ minimum: 0, maximum: 1 }))
  const share = yield* optionalSetting(
    "OTEL_TRACES_SAMPLER_ARG",
    Config.schema(ratio, "OTEL_TRACES_SAMPLER_ARG"),
    "a number from 0 to 1"
  )
  const sampler = Option.getOrElse(given, () => "parentbased_always_on" as const)
  const parentDecides = sampler.startsWith("parentbased_")
  if (sampler.endsWith("traceidratio")) return { parentDecides, ratio: Option.getOrElse(share, () => 1) }
  return { parentDecides, ratio: sampler.endsWith("always_on") ? 1 : 0 }
})

/** Reads every variable of OpenTelemetry that the service heeds, and removes headers from the environment. */
export const readOtlpSettings = Effect.gen(function* () {
  const general = {
    endpoint: yield* endpoint("OTEL_EXPORTER_OTLP_ENDPOINT"),
    headers: yield* headers("OTEL_EXPORTER_OTLP_HEADERS")
  }
  const disabled = Option.getOrElse(
    yield* optionalSetting("OTEL_SDK_DISABLED", Config.Boolean("OTEL_SDK_DISABLED"), "true or false"),
    () => false
  )
  const signal = Effect.fnUntraced(function* (name: "traces" | "metrics") {
    const variable = name.toUpperCase()
    const own = {
      endpoint: yield* endpoint(`OTEL_EXPORTER_OTLP_${variable}_ENDPOINT`),
      headers: yield* headers(`OTEL_EXPORTER_OTLP_${variable}_HEADERS`)
    }
    const exporterName = `OTEL_${variable}_EXPORTER`
    const exporter = yield* optionalSetting(
      exporterName,
      Config.Literals(["otlp", "none"], exporterName),
      "otlp or none"
    )
    const url = Option.orElse(own.endpoint, () => Option.map(general.endpoint, (found) => endpointOf(name, found)))
    const off = disabled || Option.contains(exporter, "none")
    const sent = Option.getOrElse(
      Option.orElse(own.headers, () => general.headers),
      () => Redacted.make({})
    )
    return off ? Option.none() : Option.map(url, (found): OtlpTarget => ({ url: found, headers: sent }))
  })
  return {
    resource: yield* readServiceResource,
    traces: yield* signal("traces"),
    metrics: yield* signal("metrics"),
    sampling: yield* sampling
  } satisfies OtlpSettings
})
