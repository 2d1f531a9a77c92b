import { Option, Redacted, Schema } from "effect"
import type { Issue } from "./Issue.ts"
import { takesKeyMaterial } from "./Provider.ts"
import type { Region } from "./Region.ts"

/** The content of a raw key: the secret that its label is made from, and its region if it names one (D28). */
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

/** Parsed keys, kept as long as the key itself: the validation and the label of a create both need them. */
const parsed = new WeakMap<Redacted.Redacted, Option.Option<KeyMaterial>>()

/** Parses a raw key in its provider's format. None if it starts as JSON but is not valid key material (D28). */
export const readKeyMaterial = (provider: string, key: Redacted.Redacted): Option.Option<KeyMaterial> => {
  const text = Redacted.value(key)
  if (!takesKeyMaterial(provider) || !text.trimStart().startsWith("{")) {
    return Option.some({ secret: text, region: null })
  }
  const material = parsed.get(key) ?? parse(key)
  parsed.set(key, material)
  return material
}

/** What is wrong with a raw key that `readKeyMaterial` cannot read. */
export const malformedKey: Issue = {
  path: ["key"],
  message:
    "must be a plain key or a JSON object with a non-empty api_key and, if it has a region, one of global, europe, us or eu"
}
