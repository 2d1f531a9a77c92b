import { randomUUID } from "node:crypto"
import { Effect, Option, Redacted, Schema, SchemaTransformation } from "effect"
import { decodedBy, httpUrl, oneOf, secret, setting, settingOr, text, trueOrFalse } from "./Environment.ts"

/** The version of byok, as in package.json. */
export const version = "1.0.0"

type Pairs = Readonly<Record<string, string>>

/** `key=value,key=value`. Refuses anything else: Effect's `Config.Record` would skip a mistyped header. */
const Pairs = Schema.String.check(Schema.isPattern(/^(?:\s*[^=,\s]+\s*=[^,]*(?:,|$))*\s*$/)).pipe(
  Schema.decodeTo(
    Schema.Record(Schema.StringFromUriComponent, Schema.StringFromUriComponent),
    SchemaTransformation.splitKeyValue({ trim: true, keepEmptyValues: true })
  )
)

const pairs = decodedBy(Pairs, "pairs such as key=value, separated by commas, their values percent-encoded")

/** Whether the name is a token of HTTP and the value is printable ASCII. */
const isHeader = ([name, value]: readonly [string, string]) =>
  /^[!#$%&'*+.^_`|~\w-]+$/.test(name) && /^[\x20-\x7e]*$/.test(value)

const headers = decodedBy(
  Pairs.check(Schema.makeFilter((record) => Object.entries(record).every(isHeader))),
  "headers such as name=value, separated by commas, their values percent-encoded"
)

const samplers = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio"
] as const

const fraction = decodedBy(
  Schema.NumberFromString.check(Schema.isBetween({ minimum: 0, maximum: 1 })),
  "a number from 0 to 1"
)

const sampling = Effect.gen(function* () {
  const sampler = yield* settingOr(
    "OTEL_TRACES_SAMPLER",
    oneOf(samplers, `one of ${samplers.join(", ")}`),
    "parentbased_always_on"
  )
  const ratio = yield* settingOr("OTEL_TRACES_SAMPLER_ARG", fraction, 1)
  return {
    parentDecides: sampler.startsWith("parentbased_"),
    ratio: sampler.endsWith("traceidratio") ? ratio : sampler.endsWith("always_on") ? 1 : 0
  }
})

/** The id of this instance, unless OTEL_RESOURCE_ATTRIBUTES sets another. */
const instanceId = randomUUID()

/** Reads the OpenTelemetry resource: the names of the service and the instance. Its version is always this build's. */
export const readServiceResource = Effect.gen(function* () {
  const resource = yield* settingOr("OTEL_RESOURCE_ATTRIBUTES", pairs, {})
  const { "service.name": name = "byok", "service.version": _, ...others } = resource
  const attributes: Pairs & { readonly "service.instance.id": string } = {
    "service.instance.id": instanceId,
    ...others
  }
  return { serviceName: yield* settingOr("OTEL_SERVICE_NAME", text, name), serviceVersion: version, attributes }
})

/** Reads where to send traces and metrics, and how. Removes the headers from the environment. */
export const readOtlpSettings = Effect.gen(function* () {
  const collector = yield* setting("OTEL_EXPORTER_OTLP_ENDPOINT", httpUrl)
  const secretHeaders = yield* secret("OTEL_EXPORTER_OTLP_HEADERS", headers)
  const disabled = yield* settingOr("OTEL_SDK_DISABLED", trueOrFalse, false)
  const urlFor = Effect.fnUntraced(function* (signal: "traces" | "metrics") {
    const name = `OTEL_${signal.toUpperCase()}_EXPORTER`
    const exporter = yield* settingOr(name, oneOf(["otlp", "none"], "otlp or none"), "otlp")
    if (disabled || exporter === "none") return Option.none()
    return Option.map(collector, (base) => {
      const url = new URL(base)
      url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/${signal}`
      return url.href
    })
  })
  return {
    resource: yield* readServiceResource,
    /** Redacted, because they may hold the collector's credentials. */
    headers: Option.getOrElse(secretHeaders, () => Redacted.make<Pairs>({})),
    /** The URLs to which to send spans and metrics as JSON; none where that is off. */
    traces: yield* urlFor("traces"),
    metrics: yield* urlFor("metrics"),
    sampling: yield* sampling
  }
})
