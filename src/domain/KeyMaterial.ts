import { Option, Schema } from "effect"
import { type Provider, takesKeyMaterial } from "./Provider.ts"
import type { Region } from "./Region.ts"

/** What a raw key says: the secret that its label is made of, and the region it belongs to, if it names one (D28). */
export interface KeyMaterial {
  readonly secret: string
  readonly region: Region | null
}

const JsonKey = Schema.fromJsonString(
  Schema.Struct({
    api_key: Schema.NonEmptyString,
    region: Schema.optionalKey(Schema.Literals(["global", "europe", "us", "eu"]))
  })
)
const decodeJsonKey = Schema.decodeUnknownOption(JsonKey)

/** Reads a raw key as its provider writes it; none when it starts as a JSON object and is not a proper one (D28). */
export const readKeyMaterial = (provider: Provider, key: string): Option.Option<KeyMaterial> => {
  if (!takesKeyMaterial(provider) || !key.trimStart().startsWith("{")) return Option.some({ secret: key, region: null })
  return Option.map(decodeJsonKey(key), ({ api_key, region = null }) => ({
    secret: api_key,
    region: region === "eu" ? "europe" : region
  }))
}
