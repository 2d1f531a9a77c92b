import { Option, Redacted, Result, Schema } from "effect"
import type { Issue } from "./Issue.ts"
import { signsTokens, takesKeyMaterial } from "./Provider.ts"
import type { Region } from "./Region.ts"
import { Text } from "./checkInput.ts"

/** The content of a raw key: the secret that its label is made from, and its region if it names one (D28). */
export interface KeyMaterial {
  readonly secret: Redacted.Redacted
  readonly region: Region | null
}

const JsonKey = Schema.fromJsonString(
  Schema.Struct({
    api_key: Schema.NonEmptyString,
    region: Schema.optionalKey(Schema.Literals(["global", "europe", "us", "eu"]))
  })
)
const decodeJsonKey = Schema.decodeUnknownOption(JsonKey)

const beginsLikeJson = /^\s*[{[]/

const malformed = (message: string) => Result.fail<Issue>({ path: ["key"], message })

/** Parses a raw key in its provider's format. Fails if it begins like JSON but is not valid key material (D28, D57). */
export const readKeyMaterial = (provider: string, key: Redacted.Redacted): Result.Result<KeyMaterial, Issue> => {
  const text = Redacted.value(key)
  if (signsTokens(provider) && beginsLikeJson.test(text) && parseJson(text) === undefined) {
    return malformed("must be a plain key or valid JSON")
  }
  if (!takesKeyMaterial(provider) || !text.trimStart().startsWith("{")) {
    return Result.succeed({ secret: key, region: null })
  }
  return Option.match(decodeJsonKey(text), {
    onNone: () =>
      malformed(
        "must be a plain key or a JSON object with a non-empty api_key and, if it has a region, one of global, europe, us or eu"
      ),
    onSome: ({ api_key, region = null }) =>
      Result.succeed({ secret: Redacted.make(api_key), region: region === "eu" ? "europe" : region })
  })
}

/** What is wrong with a key that a leak search with `--park` has found in a credential of the account. */
export const leakedKey: Issue = {
  path: ["key"],
  message: "must not hold a secret that is marked as leaked in this account"
}

/** What JSON begins with. Most keys do not, and to have `JSON.parse` throw takes longer than all else that is done with them. */
const jsonBeginning = /^[ \t\r\n]*["[{\-\dfnt]/

/** Undefined if the text is not JSON. */
export const parseJson = (text: string): unknown =>
  jsonBeginning.test(text) ? Result.getOrUndefined(Result.try(() => JSON.parse(text) as unknown)) : undefined

/** Every string value inside JSON text, with the name of its member; none if it is not JSON. */
const membersIn = (text: string): ReadonlyArray<readonly [name: string, string: string]> => {
  const strings: Array<readonly [string, string]> = []
  const values: Array<readonly [string, unknown]> = [["", parseJson(text)]]
  for (let next = values.pop(); next !== undefined; next = values.pop()) {
    const [name, value] = next
    if (typeof value === "string") strings.push([name, value])
    // An element of a list goes by the name of the list.
    else if (Array.isArray(value)) for (const inner of value) values.push([name, inner])
    else if (typeof value === "object" && value !== null) values.push(...Object.entries(value))
  }
  return strings
}

/** The key as a whole and its parts: of key material (D28) its `api_key`, of any other JSON every string in members that `counts`. */
export const secretsIn = (
  provider: string,
  key: Redacted.Redacted,
  counts: (name: string) => boolean = () => true
): ReadonlyArray<string> => {
  const whole = Redacted.value(key)
  const secret = Result.match(readKeyMaterial(provider, key), {
    onFailure: () => whole,
    onSuccess: ({ secret }) => Redacted.value(secret)
  })
  return [whole, secret, ...membersIn(secret).flatMap(([name, text]) => (counts(name) ? [text] : []))]
}

/** Members of JSON keys that say where and for whom a key is, such as those of a service account. */
const isPublic = (name: string) =>
  /^(type|version|api_version|region|location|project|project_id|client_id|client_email|universe_domain|endpoint|deployment)$|(_|^)ur[il]$/i.test(
    name
  )

/** The secrets of a stored key that must appear in no text: as `secretsIn`, without what is public in JSON. */
export const hiddenSecretsIn = (provider: string, key: Redacted.Redacted): ReadonlyArray<string> =>
  secretsIn(provider, key, (name) => !isPublic(name))

/** Secrets of fewer characters may be equal by chance. */
const shortestShared = 8

/** Whether two keys of a provider are equal or have a secret in common, whatever is around it. */
export const haveCommonSecret = (provider: string, one: Redacted.Redacted, other: Redacted.Redacted): boolean => {
  if (Redacted.value(one) === Redacted.value(other)) return true
  const secrets = new Set(hiddenSecretsIn(provider, one).map((secret) => secret.trim()))
  return hiddenSecretsIn(provider, other).some(
    (secret) => secret.trim().length >= shortestShared && secrets.has(secret.trim())
  )
}

/** The text, also without the byte order mark and line break of editors; of key material (D28) also its `api_key`. */
export const secretsOfLeak = (text: Redacted.Redacted): ReadonlyArray<string> => {
  const given = Redacted.value(text)
  const texts = [given, given.replace(/^\uFEFF/, "").replace(/\r?\n$/, "")]
  const materials = texts.map((one) => readKeyMaterial("openai", Redacted.make(one)))
  const secrets = materials.flatMap((material) =>
    Result.isSuccess(material) ? [Redacted.value(material.success.secret)] : []
  )
  return Array.from(new Set([...texts, ...secrets])).filter((secret) => secret !== "")
}

/** What is left on a key that was copied with too much around it, or that was never one. */
const faults: ReadonlyArray<readonly [form: RegExp, fault: string]> = [
  [/^[\s\p{Cc}\p{Cf}]|[\s\p{Cc}\p{Cf}]$/u, "white space, a control character or a format character at either end"],
  [/^(["'`]).*\1$|^[\u201c\u2018].*[\u201d\u2019]$/s, "quotes around it"],
  [/^([a-z-]+: *)?(bearer|basic|token|key|api-?key)\s/i, "a scheme such as Bearer before it"],
  [
    /^[!-~]{1,3}\.{3}[!-~]{1,4}$|^[!-~]{0,24}\u2026[!-~]{0,12}$|\*{3}|[\u2022\u25cf\u2219\u00b7]{3}/,
    "the form of a label or a mask"
  ],
  [/^[a-z][a-z0-9+.-]*:\/\//i, "the form of a URL"],
  [
    /^((export|setx?)\s+|\$env:)?([A-Z_][A-Z0-9_]+|[a-z_]*(key|token|secret))\s*=\s*[^=\s]/,
    "the form of a line such as NAME=value"
  ]
]

/** What is wrong with the form of a raw key (D45), or with that of its `api_key` if it is JSON. */
export const keyFaultIn = (key: string): string | undefined => {
  const json = beginsLikeJson.test(key) ? parseJson(key) : undefined
  const secret: unknown = json === undefined ? key : Reflect.get(Object(json), "api_key")
  if (typeof secret !== "string") return undefined
  const fault = faults.find(([form]) => form.test(secret))
  return fault && `must not have ${json === undefined ? "" : "an api_key with "}${fault[1]}`
}

const description =
  "Raw provider key. Encrypted at rest, never returned. It must not have white space, control or format characters, quotes or a scheme such as Bearer around it, nor be a label, a mask, a URL or a line NAME=value. For openai and fireworks it may be a JSON object with api_key and region. A new key of these sets declared_region to its own region, or to null if it has none."

export const RawKey = Schema.RedactedFromValue(
  Text.check(Schema.makeFilter(keyFaultIn), Schema.isNonEmpty({ message: "must not be empty", description }))
)
