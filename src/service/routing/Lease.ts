import { inspect } from "node:util"
import { Redacted } from "effect"
import type { OwnedCredential } from "../../domain/Identifiers.ts"
import type { Health } from "../../domain/routing/Health.ts"
import type { TokenTerms } from "../tokens/Tokens.ts"
import { partsOf } from "../tokens/mint.ts"
import { hiddenSecretsIn } from "../../domain/KeyMaterial.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { Region } from "../../domain/Region.ts"

/** Of which credential a lease is, and for which attempt. */
export interface LeaseTerms extends OwnedCredential {
  readonly key_version: number
  readonly label: string
  readonly provider: Provider
  readonly model: string
  /** What the credential declares, which may decide the upstream's address (E12). */
  readonly region: Exclude<Region, "global"> | null
  /** The form that the request asks for (D58). */
  readonly keys: "as_stored" | "tokens"
  /** In milliseconds since 1970. */
  readonly leased_at: number
}

const hidden = "<lease>"

/** A provider key, or the token that stands in for it, in the clear for one attempt: a buffer that is zeroed when its scope ends. It shows itself nowhere. */
export class Lease {
  readonly terms: LeaseTerms
  /** That of its key when it was made. */
  readonly health: Health
  #key: Buffer | undefined
  #token: TokenTerms | undefined
  #ended = false

  constructor(terms: LeaseTerms, health: Health) {
    this.terms = terms
    this.health = health
  }

  /**
   * Copies an opened key or its token, unless the lease has ended: a key store may answer late. The memory is its own, as a
   * slice of Node's pool would share it with others.
   */
  fill(opened: Uint8Array, token?: TokenTerms): void {
    if (this.#ended) return
    this.#token = token
    this.#key = Buffer.allocUnsafeSlow(opened.length)
    this.#key.set(opened)
  }

  wipe(): void {
    this.#key?.fill(0)
    this.#key = undefined
    this.#ended = true
  }

  get hasEnded(): boolean {
    return this.#ended
  }

  /** What is known of the token that the lease holds; undefined if that is the stored key. */
  get token(): TokenTerms | undefined {
    return this.#token
  }

  /** The key's own buffer, not a copy: zero after the scope. */
  get bytes(): Buffer {
    if (this.#key === undefined) throw new Error("The lease has ended")
    return this.#key
  }

  /** The key as HTTP clients take it. The one copy that outlives the scope, until it is collected: keep it nowhere. */
  text(): string {
    return this.bytes.toString("utf8")
  }

  /** The text with the key replaced by the id of its credential; as it is once the lease has ended. */
  redact(text: string): string {
    const { credential_id, provider } = this.terms
    if (this.#key === undefined) return text
    const key = this.text()
    const parts = this.#token === undefined ? [] : partsOf(key)
    return redactKey(text, provider, Redacted.make(key), `<${credential_id}>`, parts)
  }

  toString(): string {
    return hidden
  }

  toJSON(): string {
    return hidden
  }

  [inspect.custom](): string {
    return hidden
  }
}

/** Shorter secrets are words that texts have anyway. */
const shortest = 8

/** How many secrets of one key are looked for, the longest first. */
const maxSecrets = 20

/** Base64 of a secret that stands somewhere in encoded text, as in Basic authentication: what its bytes alone decide. */
const base64Within = (secret: Buffer): ReadonlyArray<string> =>
  [0, 1, 2].map((offset) => {
    const encoded = Buffer.concat([Buffer.alloc(offset), secret]).toString("base64")
    return encoded.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + secret.length) * 8) / 6))
  })

/** The forms in which a secret turns up in an upstream's answer or an error. */
const formsOf = (secret: string): ReadonlyArray<string> => {
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
    ...base64.map((form) => form.replaceAll("+", "-").replaceAll("/", "_")),
    hex,
    hex.toUpperCase()
  ]
}

const literal = (text: string) => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&")

/** Replaces a key, every secret inside it and other `parts` of it by `replacement` in one pass over a text. Short secrets stay. */
export const redactKey = (
  text: string,
  provider: Provider,
  key: Redacted.Redacted,
  replacement: string,
  parts: ReadonlyArray<string> = []
): string => {
  const secrets = Array.from(new Set([...hiddenSecretsIn(provider, key), ...parts]))
    .filter((secret) => secret.length >= shortest)
    .sort((one, other) => other.length - one.length)
    .slice(0, maxSecrets)
  if (secrets.length === 0) return text
  const forms = Array.from(new Set(secrets.flatMap(formsOf))).sort((one, other) => other.length - one.length)
  return text.replace(new RegExp(forms.map(literal).join("|"), "g"), () => replacement)
}
