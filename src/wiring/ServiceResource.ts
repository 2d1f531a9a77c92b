import { randomUUID } from "node:crypto"
import { Config, Effect, Option, Schema } from "effect"
import { keyValuePairs } from "./keyValuePairs.ts"
import { optionalSetting } from "./optionalSetting.ts"
import { version } from "./version.ts"

/** Which service and which instance of it something comes from, in the terms of OpenTelemetry. */
export interface ServiceResource {
  readonly serviceName: string
  readonly serviceVersion: string
  readonly attributes: Readonly<Record<string, string>> & { readonly "service.instance.id": string }
}

/** Of this process, unless the settings name one. */
const ownId = randomUUID()

const attributesSetting = "OTEL_RESOURCE_ATTRIBUTES"

const usable = Schema.makeFilter((text: string) => keyValuePairs(text) !== undefined)

/** Reads `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`. */
export const readServiceResource = Effect.gen(function* () {
  const name = yield* optionalSetting("OTEL_SERVICE_NAME", Config.NonEmptyString("OTEL_SERVICE_NAME"), "a name")
  const given = yield* optionalSetting(
    attributesSetting,
    Config.schema(Schema.String.check(usable), attributesSetting),
    "pairs such as key=value, separated by commas, their values percent-encoded"
  )
  const {
    "service.instance.id": instance = ownId,
    "service.name": serviceName = "byok",
    "service.version": _,
    ...attributes
  } = keyValuePairs(Option.getOrElse(given, () => "")) ?? {}
  return {
    serviceName: Option.getOrElse(name, () => serviceName),
    serviceVersion: version,
    attributes: { ...attributes, "service.instance.id": instance }
  } satisfies ServiceResource
})
