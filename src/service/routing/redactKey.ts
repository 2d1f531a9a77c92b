import type { Redacted } from "effect"
import { hiddenSecretsIn } from "../../domain/KeyMaterial.ts"
import type { Provider } from "../../domain/Provider.ts"

/** Minimum length of a secret to redact: shorter ones may be ordinary words. */
const minSecretLength = 8

/** Maximum secrets of a key to redact, longest first. */
const maxSecrets = 20

/** How many characters of a longer encoding are enough to recognise it, which bounds the time of a search. */
const needleLength = 1024

/**
 * The base64 characters of a secret inside longer encoded text, as in Basic authentication: one text for each position
 * in a group of three bytes. Omits characters that also encode bits of the neighbouring bytes.
 */
const base64Within = (secret: Buffer): ReadonlyArray<string> =>
  [0, 1, 2].map((bytesBefore) => {
    const encoded = Buffer.concat([Buffer.alloc(bytesBefore), secret]).toString("base64")
    return encoded.slice(Math.ceil((bytesBefore * 8) / 6), Math.floor(((bytesBefore + secret.length) * 8) / 6))
  })

/** The encodings of a secret that upstreams repeat in answers and errors. */
const encodingsOf = (secret: string): ReadonlyArray<string> => {
  const bytes = Buffer.from(secret)
  const hex = bytes.toString("hex")
  const escaped = JSON.stringify(secret).slice(1, -1)
  const percent = encodeURIComponent(secret.toWellFormed())
  const base64 = [bytes.toString("base64").replace(/=+$/, ""), ...base64Within(bytes)]
  return [
    secret,
    escaped,
    percent,
    percent.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase()),
    ...base64,
    ...base64.map((encoding) => encoding.replaceAll("+", "-").replaceAll("/", "_")),
    hex,
    hex.toUpperCase()
  ]
}

/** How many characters of `encoding` a text has at an index. */
const commonLength = (text: string, at: number, encoding: string): number => {
  if (text.startsWith(encoding, at)) return encoding.length
  let length = 0
  while (length < encoding.length && text.charCodeAt(at + length) === encoding.charCodeAt(length)) length += 1
  return length
}

/**
 * Replaces the secrets of a key, and those in `parts`, wherever they occur in a text in any encoding, from left to right
 * and as much of the text as possible. Of a long encoding, replaces any beginning of at least 1,024 characters.
 */
export const redactKey = (
  text: string,
  provider: Provider,
  key: Redacted.Redacted,
  replacement: string,
  parts: ReadonlyArray<string> = []
): string => {
  const secrets = Array.from(new Set([...hiddenSecretsIn(provider, key), ...parts]))
    .filter((secret) => secret.length >= minSecretLength)
    .sort((one, other) => other.length - one.length)
    .slice(0, maxSecrets)
  let found = Array.from(new Set(secrets.flatMap(encodingsOf)), (encoding) => {
    const needle = encoding.slice(0, needleLength)
    return { encoding, needle, at: text.indexOf(needle) }
  })
  let redacted = ""
  let end = 0
  while (true) {
    for (const one of found) if (one.at >= 0 && one.at < end) one.at = text.indexOf(one.needle, end)
    found = found.filter(({ at }) => at >= 0)
    const first = found.reduce((least, { at }) => Math.min(least, at), text.length)
    redacted += text.slice(end, first)
    if (found.length === 0) return redacted
    const lengths = found.map(({ at, encoding }) => (at === first ? commonLength(text, at, encoding) : 0))
    redacted += replacement
    end = first + Math.max(...lengths)
  }
}
