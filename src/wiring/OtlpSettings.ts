import { randomUUID } from "node:crypto"
import { Config, Effect, Option, Redacted, Schema, SchemaTransformation } from "effect"
import type { Sampling } from "../telemetry/TracerLive.ts"
import { type InvalidSetting, optionalSetting, secretSetting } from "./Environment.ts"

/** The version of the program. */
export const version = "2.0.0"

/** Which service and which instance of it something comes from, in the terms of OpenTelemetry. */
export interface ServiceResource {
  readonly serviceName: string
  readonly serviceVersion: string
  readonly attributes: Readonly<Record<string, string>> & { readonly "service.instance.id": string }
}

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

/** `key=value,key=value`. Effect's `Config.Record` skips what is no pair, and with it a mistyped header. */
const Pairs = Schema.String.check(Schema.isPattern(/^(?:\s*[^=,\s]+\s*=[^,]*(?:,|$))*\s*$/)).pipe(
  Schema.decodeTo(
    Schema.Record(Schema.StringFromUriComponent, Schema.StringFromUriComponent),
    SchemaTransformation.splitKeyValue({ trim: true, keepEmptyValues: true })
  )
)

/** This process, unless the settings name an instance. */
const ownId = randomUUID()

/** Reads `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`. */
export const readServiceResource = Effect.gen(function* () {
  const name = yield* optionalSetting("OTEL_SERVICE_NAME", Config.NonEmptyString("OTEL_SERVICE_NAME"), "a name")
  const given = yield* optionalSetting(
    "OTEL_RESOURCE_ATTRIBUTES",
    Config.schema(Pairs, "OTEL_RESOURCE_ATTRIBUTES"),
    "pairs such as key=value, separated by commas, their values percent-encoded"
  )
  const {
    "service.instance.id": instance = ownId,
    "service.name": serviceName = "byok",
    "service.version": _,
    ...attributes
  } = Option.getOrElse(given, (): Readonly<Record<string, string>> => ({}))
  return {
    serviceName: Option.getOrElse(name, () => serviceName),
    serviceVersion: version,
    attributes: { ...attributes, "service.instance.id": instance }
  } satisfies ServiceResource
})

const isHeader = ([name, value]: readonly [string, string]) =>
  /^[!#$%&'*+.^_`|~\w-]+$/.test(name) && /^[\x20-\x7e]*$/.test(value)

const Headers = Pairs.check(Schema.makeFilter((found) => Object.entries(found).every(isHeader)))

const headers = (name: string) =>
  secretSetting(
    name,
    Config.schema(Headers, name),
    "headers such as name=value, separated by commas, their values percent-encoded"
  )

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
export const readOtlpSettings: Effect.Effect<OtlpSettings, InvalidSetting> = Effect.gen(function* () {
  const allEndpoint = yield* endpoint("OTEL_EXPORTER_OTLP_ENDPOINT")
  const allHeaders = yield* headers("OTEL_EXPORTER_OTLP_HEADERS")
  const disabled = yield* optionalSetting("OTEL_SDK_DISABLED", Config.Boolean("OTEL_SDK_DISABLED"), "true or false")
  const targetOf = Effect.fnUntraced(function* (signal: "traces" | "metrics") {
    const name = signal.toUpperCase()
    const own = yield* endpoint(`OTEL_EXPORTER_OTLP_${name}_ENDPOINT`)
    const ownHeaders = yield* headers(`OTEL_EXPORTER_OTLP_${name}_HEADERS`)
    const exporters = Config.Literals(["otlp", "none"], `OTEL_${name}_EXPORTER`)
    const exporter = yield* optionalSetting(`OTEL_${name}_EXPORTER`, exporters, "otlp or none")
    if (Option.contains(disabled, true) || Option.contains(exporter, "none")) return Option.none()
    const sent = Option.getOrElse(
      Option.orElse(ownHeaders, () => allHeaders),
      () => Redacted.make({})
    )
    const url = Option.orElse(own, () => Option.map(allEndpoint, (found) => endpointOf(signal, found)))
    return Option.map(url, (found): OtlpTarget => ({ url: found, headers: sent }))
  })
  return {
    resource: yield* readServiceResource,
    traces: yield* targetOf("traces"),
    metrics: yield* targetOf("metrics"),
    sampling: yield* sampling
  }
})
