import { Schema } from "effect"
import { parseJson } from "./KeyMaterial.ts"
import { Text } from "./checkInput.ts"

/** What is left on a key that was copied with too much around it, or that was never one. */
const faults: ReadonlyArray<readonly [form: RegExp, fault: string]> = [
  [/^[\s\p{Cc}]|[\s\p{Cc}]$/u, "white space or a control character at either end"],
  [/^(["'`]).*\1$/s, "quotes around it"],
  [/^([a-z-]+: *)?(bearer|basic|token|key|api-?key)\s/i, "a scheme such as Bearer before it"],
  [/^[!-~]{1,3}\.{3}[!-~]{1,4}$/, "the form of a label"]
]

/** What is wrong with the ends of a raw key (D45), or with those of its `api_key` if it is JSON. */
export const keyFaultIn = (key: string): string | undefined => {
  const json = /^\s*[{[]/.test(key) ? parseJson(key) : undefined
  const secret: unknown = json === undefined ? key : Reflect.get(Object(json), "api_key")
  if (typeof secret !== "string") return undefined
  const found = faults.find(([form]) => form.test(secret))
  return found && `must not have ${json === undefined ? "" : "an api_key with "}${found[1]}`
}

const description =
  "Raw provider key. Encrypted at rest, never returned. It must not have white space, control characters, quotes or a scheme such as Bearer around it. For openai and fireworks it may be a JSON object with api_key and region. A new key of these sets declared_region to its own region, or to null if it has none."

export const RawKey = Schema.RedactedFromValue(
  Text.check(Schema.makeFilter(keyFaultIn), Schema.isNonEmpty({ message: "must not be empty", description }))
)
