import { Option, Redacted } from "effect"
import { readKeyMaterial } from "./KeyMaterial.ts"

/**
 * The secrets that leaked text may be: the text as it is, or without the byte order mark and the line break that editors
 * add; and if that is key material (D28), its `api_key`.
 */
export const secretsOfLeak = (text: Redacted.Redacted): ReadonlyArray<string> => {
  const given = Redacted.value(text)
  const texts = [given, given.replace(/^\uFEFF/, "").replace(/\r?\n$/, "")]
  const materials = texts.map((one) => readKeyMaterial("openai", Redacted.make(one)))
  const secrets = materials.flatMap((material) => Option.toArray(Option.map(material, ({ secret }) => secret)))
  return Array.from(new Set([...texts, ...secrets])).filter((secret) => secret !== "")
}
