import { Option, Redacted, Result, Schema } from "effect"
import { type CloudKey, containsCloudKey, decodeCloudKey, isCloudApiKey, publicIdOf } from "./CloudKey.ts"
import { hasMoreValuesThan } from "./hasMoreValuesThan.ts"
import type { Issue } from "./Issue.ts"
import { hasKnownApiKeys, signsTokens, takesRegionInKey } from "./Provider.ts"
import type { Region } from "./Region.ts"
import { Text } from "./checkInput.ts"
import { keyFaultIn } from "./keyFault.js"

/** A parsed raw key (D28, D57). The secret is the raw key, or the `api_key` in JSON that may have a region. */
export interface KeyMaterial {
  readonly secret: Redacted.Redacted
  /** The text that the label masks (D56): the secret, a cloud key's public id or Azure's first `api_key`. */
  readonly labelSource: Redacted.Redacted
  readonly region: Region | null
}

const JsonKey = Schema.fromJsonString(
  Schema.Struct({
    api_key: Schema.NonEmptyString,
    region: Schema.optionalKey(Schema.Literals(["global", "europe", "us", "eu"]))
  })
)
const decodeJsonKey = Schema.decodeUnknownOption(JsonKey)

const beginsLikeObjectOrList = /^\s*[{[]/

/** Parses a JSON key that signs tokens (D57); undefined for any other. Fails with one sentence per invalid member. */
export const parseCloudKey = (
  provider: string,
  text: string
): Result.Result<CloudKey, ReadonlyArray<string>> | undefined =>
  signsTokens(provider) && beginsLikeObjectOrList.test(text) ? decodeCloudKey(provider, parseJson(text)) : undefined

/** The first `api_key` in an Azure key, which may be JSON of one deployment or a list of them. */
const firstApiKeyIn = (text: string): string | undefined => {
  const elements: ReadonlyArray<unknown> = beginsLikeObjectOrList.test(text) ? [parseJson(text)].flat() : []
  const keys = elements.map((element): unknown => Reflect.get(Object(element), "api_key"))
  return keys.find((key): key is string => typeof key === "string" && key !== "")
}

/**
 * Whether a key is or may be a cloud key that cannot sign tokens: malformed, in another form than JSON, or stored for a
 * provider whose keys sign none. False for API keys, which need not sign.
 */
export const isUnableToSign = (provider: string, text: string): boolean => {
  const cloudKey = parseCloudKey(provider, text)
  if (cloudKey !== undefined) return Result.isFailure(cloudKey)
  return hasKnownApiKeys(provider) ? !isCloudApiKey(text) : containsCloudKey(text)
}

/** The issue of a malformed cloud key. `fault` is a sentence of `parseCloudKey`; empty if the key is not an object. */
const malformedCloudKey = (fault: string): Issue => ({
  path: ["key"],
  message: `must be a plain key or a JSON object${fault === "" ? "" : `: ${fault}`}`
})

const malformedKey: Issue = {
  path: ["key"],
  message:
    "must be a plain key or a JSON object with a non-empty api_key and, if it has a region, one of global, europe, us or eu"
}

/** Parses a raw key in its provider's format (D28, D57). Fails only for JSON that this format refuses. */
export const readKeyMaterial = (
  provider: string,
  key: Redacted.Redacted
): Result.Result<KeyMaterial, ReadonlyArray<Issue>> => {
  const text = Redacted.value(key)
  if (takesRegionInKey(provider) && text.trimStart().startsWith("{")) {
    return Option.match(decodeJsonKey(text), {
      onNone: () => Result.fail([malformedKey]),
      onSome: ({ api_key, region = null }) => {
        const secret = Redacted.make(api_key)
        return Result.succeed({ secret, labelSource: secret, region: region === "eu" ? "europe" : region })
      }
    })
  }
  const wholeKeyLabelledBy = (labelSource: string) => ({
    secret: key,
    labelSource: Redacted.make(labelSource),
    region: null
  })
  const cloudKey = parseCloudKey(provider, text)
  if (cloudKey !== undefined) {
    return Result.mapBoth(cloudKey, {
      onFailure: (faults) => faults.map(malformedCloudKey),
      onSuccess: (decoded) => wholeKeyLabelledBy(publicIdOf(decoded))
    })
  }
  return Result.succeed(wholeKeyLabelledBy((provider === "azure" ? firstApiKeyIn(text) : undefined) ?? text))
}

/** The issue of a key that shares a secret with one marked as leaked in its account. */
export const leakedKey: Issue = {
  path: ["key"],
  message: "must not hold a secret that is marked as leaked in this account"
}

/** Matches what JSON may begin with: `JSON.parse` throws for plain keys, which is slow. */
const mayBeginJson = /^[ \t\r\n]*["[{\-\dfnt]/

/** Returns undefined unless the text is JSON. */
export const parseJson = (text: string): unknown =>
  mayBeginJson.test(text) ? Result.getOrUndefined(Result.try(() => JSON.parse(text) as unknown)) : undefined

/** Every string value in JSON text, with the name of its member. Elements of a list have the name of the list. */
const stringsIn = (text: string): ReadonlyArray<readonly [name: string, value: string]> => {
  const strings: Array<readonly [string, string]> = []
  const values: Array<readonly [string, unknown]> = [["", parseJson(text)]]
  for (let next = values.pop(); next !== undefined; next = values.pop()) {
    const [name, value] = next
    if (typeof value === "string") strings.push([name, value])
    else if (Array.isArray(value)) for (const inner of value) values.push([name, inner])
    else if (typeof value === "object" && value !== null)
      for (const member of Object.entries(value)) values.push(member)
  }
  return strings
}

/**
 * The secrets in a raw key: the whole key, the `api_key` in it (D28), and the strings of any other JSON key, limited to
 * members whose name `includes` accepts.
 */
export const secretsIn = (
  provider: string,
  key: Redacted.Redacted,
  includes: (name: string) => boolean = () => true
): ReadonlyArray<string> => {
  const whole = Redacted.value(key)
  const secret = Result.match(readKeyMaterial(provider, key), {
    onFailure: () => whole,
    onSuccess: ({ secret }) => Redacted.value(secret)
  })
  return [whole, secret, ...stringsIn(secret).flatMap(([name, value]) => (includes(name) ? [value] : []))]
}

/** Whether a member of a JSON key is no secret, such as a project id. */
const isPublic = (name: string) =>
  /^(type|version|api_version|region|location|project|project_id|client_id|client_email|universe_domain|endpoint|deployment)$|(_|^)ur[il]$/i.test(
    name
  )

/** The secrets that no log may show: `secretsIn` without public members of JSON. */
export const hiddenSecretsIn = (provider: string, key: Redacted.Redacted): ReadonlyArray<string> =>
  secretsIn(provider, key, (name) => !isPublic(name))

/** Minimum length of a shared secret: shorter ones may be equal by chance. */
const minSharedLength = 8

/** Whether two keys of a provider are equal or share a secret. */
export const haveCommonSecret = (provider: string, one: Redacted.Redacted, other: Redacted.Redacted): boolean => {
  if (Redacted.value(one) === Redacted.value(other)) return true
  const secrets = new Set(hiddenSecretsIn(provider, one).map((secret) => secret.trim()))
  return hiddenSecretsIn(provider, other).some(
    (secret) => secret.trim().length >= minSharedLength && secrets.has(secret.trim())
  )
}

/**
 * The secrets that a leaked text may stand for: the text with and without an editor's byte order mark and line break,
 * and the `api_key` in it, as in a key of openai (D28).
 */
export const secretsOfLeak = (text: Redacted.Redacted): ReadonlyArray<string> => {
  const leaked = Redacted.value(text)
  const texts = [leaked, leaked.replace(/^\uFEFF/, "").replace(/\r?\n$/, "")]
  const materials = texts.map((one) => readKeyMaterial("openai", Redacted.make(one)))
  const secrets = materials.flatMap((material) =>
    Result.isSuccess(material) ? [Redacted.value(material.success.secret)] : []
  )
  return Array.from(new Set([...texts, ...secrets])).filter((secret) => secret !== "")
}

/**
 * Matches labels that cannot rule out that their key contains a leaked secret. A fully masked label shows nothing of
 * the key. A label of JSON, which begins and ends with a bracket, brace, quotation mark or mask, may hide further
 * secrets. PostgreSQL runs the same pattern.
 */
export const inconclusiveLabel = /^[*{["].*([*}"]|\])$/

const description =
  "Raw provider key. Encrypted at rest, never returned. It must not have white space, quotes or a scheme such as Bearer around it, nor be a label, a mask, a URL, a reference, a placeholder or a line NAME=value. Unless it is JSON, it must not have control or format characters. For openai and fireworks it may be a JSON object with api_key and region. A new key of these sets declared_region to its own region, or to null if it has none. For amazon-bedrock it may be a JSON object with accessKeyId, secretAccessKey, region and perhaps sessionToken, and for google-vertex the file of a service account, perhaps with region and bucket."

/** Maximum values in a key that is JSON: parsing it costs time for each. */
const maxValues = 1000

/** Whether a key is not JSON of more values than keys have. */
const hasFewValues = (key: string) => !beginsLikeObjectOrList.test(key) || !hasMoreValuesThan(maxValues, key)

/** A raw key in a request. Checks what all providers have in common; `readKeyMaterial` checks the provider's format. */
export const RawKey = Schema.RedactedFromValue(
  Text.check(
    // Aborts, because the others parse the key.
    Schema.makeFilter(hasFewValues, { message: `must have at most ${maxValues} values if it is JSON` }, true),
    Schema.makeFilter(keyFaultIn),
    Schema.isNonEmpty({ message: "must not be empty", description })
  )
)
