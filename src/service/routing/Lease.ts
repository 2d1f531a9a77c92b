import { inspect } from "node:util"
import { Redacted } from "effect"
import type { CredentialReference } from "../../domain/Identifiers.ts"
import type { Health } from "../../domain/routing/Health.ts"
import type { TokenTerms } from "../tokens/Tokens.ts"
import { secretPartsOf } from "../tokens/mint.ts"
import { hiddenSecretsIn } from "../../domain/KeyMaterial.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { Region } from "../../domain/Region.ts"

/** The key that a lease opens, and the attempt that the lease is for. */
export interface LeaseTerms extends CredentialReference {
  readonly key_version: number
  readonly label: string
  readonly provider: Provider
  readonly model: string
  /** Declared region, which may decide the upstream's address (E12). */
  readonly region: Exclude<Region, "global"> | null
  /** The requested form: the stored key, or a token that it signs (D58). */
  readonly keys: "as_stored" | "tokens"
  /** In milliseconds since 1970. */
  readonly leased_at: number
}

const placeholder = "<lease>"

/** Holds an opened provider key, or its token, for one attempt. Prints as a placeholder; `wipe` zeroes its buffer. */
export class Lease {
  readonly terms: LeaseTerms
  /** Health of the key when the lease began. */
  readonly health: Health
  #key: Buffer | undefined
  #token: TokenTerms | undefined
  #ended = false

  constructor(terms: LeaseTerms, health: Health) {
    this.terms = terms
    this.health = health
  }

  /**
   * Copies an opened key or its token into a buffer outside of Node's shared pool. Does nothing if the lease has ended:
   * a key store may answer late.
   */
  fill(opened: Uint8Array, token?: TokenTerms): void {
    if (this.#ended) return
    this.#token = token
    this.#key = Buffer.allocUnsafeSlow(opened.length)
    this.#key.set(opened)
  }

  /** Ends the lease and zeroes its buffer. */
  wipe(): void {
    this.#key?.fill(0)
    this.#key = undefined
    this.#ended = true
  }

  get hasEnded(): boolean {
    return this.#ended
  }

  /** The terms of the token; undefined for a stored key. */
  get token(): TokenTerms | undefined {
    return this.#token
  }

  /** The buffer itself, zeroed when the lease ends. */
  get bytes(): Buffer {
    if (this.#key === undefined) throw new Error("The lease has ended")
    return this.#key
  }

  /** The key for HTTP clients, as a copy that outlives the lease until garbage collection. Do not keep it. */
  text(): string {
    return this.bytes.toString("utf8")
  }

  /** Replaces the key in a text by the id of its credential; a lease that has ended changes nothing. */
  redact(text: string): string {
    const { credential_id, provider } = this.terms
    if (this.#key === undefined) return text
    const key = this.text()
    const parts = this.#token === undefined ? [] : secretPartsOf(key)
    return redactKey(text, provider, Redacted.make(key), `<${credential_id}>`, parts)
  }

  toString(): string {
    return placeholder
  }

  toJSON(): string {
    return placeholder
  }

  [inspect.custom](): string {
    return placeholder
  }
}

/** Minimum length of a secret to redact: shorter ones may be ordinary words. */
const minSecretLength = 8

/** Maximum secrets of a key to redact, longest first. */
const maxSecrets = 20

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
  const percent = encodeURIComponent(secret)
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

const escapeRegExp = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")

/** Replaces the secrets of a key, and those in `parts`, wherever they occur in a text in any encoding. */
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
  if (secrets.length === 0) return text
  const encodings = Array.from(new Set(secrets.flatMap(encodingsOf))).sort((one, other) => other.length - one.length)
  return text.replace(new RegExp(encodings.map(escapeRegExp).join("|"), "g"), () => replacement)
}
