import { Option, Redacted, Schema } from "effect"
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

const parse = (key: Redacted.Redacted): Option.Option<KeyMaterial> =>
  Option.map(decodeJsonKey(Redacted.value(key)), ({ api_key, region = null }) => ({
    secret: api_key,
    region: region === "eu" ? "europe" : region
  }))

/** What was read of a key lives as long as the key: the rules of create and its label need it one after the other. */
const parsed = new WeakMap<Redacted.Redacted, Option.Option<KeyMaterial>>()

/** Reads a raw key as its provider writes it; none when it starts as a JSON object and is not a proper one (D28). */
export const readKeyMaterial = (provider: Provider, key: Redacted.Redacted): Option.Option<KeyMaterial> => {
  const text = Redacted.value(key)
  if (!takesKeyMaterial(provider) || !text.trimStart().startsWith("{")) {
    return Option.some({ secret: text, region: null })
  }
  const material = parsed.get(key) ?? parse(key)
  parsed.set(key, material)
  return material
}
