import { inspect } from "node:util"
import { Redacted } from "effect"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { secretsIn } from "../../domain/KeyMaterial.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { Region } from "../../domain/Region.ts"

/** Of which credential a lease is, and for which attempt. */
export interface LeaseTerms {
  readonly account_id: AccountId
  readonly credential_id: CredentialId
  readonly key_version: number
  readonly provider: Provider
  readonly model: string
  /** What the credential declares, which may decide the upstream's address (E12). */
  readonly region: Exclude<Region, "global"> | null
  /** In milliseconds since 1970. */
  readonly leased_at: number
}

const hidden = "<lease>"

/** A provider key in the clear for one attempt: a buffer that is zeroed when its scope ends. It shows itself nowhere. */
export class Lease {
  readonly terms: LeaseTerms
  #key: Buffer | undefined
  #ended = false

  constructor(terms: LeaseTerms) {
    this.terms = terms
  }

  /**
   * Copies an opened key, unless the lease has ended: a key store may answer late. The memory is its own, as a slice of
   * Node's pool would share it with others.
   */
  readonly fill = (opened: Uint8Array): void => {
    if (this.#ended) return
    this.#key = Buffer.allocUnsafeSlow(opened.length)
    this.#key.set(opened)
  }

  readonly wipe = (): void => {
    this.#key?.fill(0)
    this.#key = undefined
    this.#ended = true
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

/** Shorter parts of key material, such as its region, are words that texts have anyway. */
const shortest = 8

/** The forms in which a secret turns up in an upstream's answer or an error. */
const formsOf = (secret: string): ReadonlyArray<string> => {
  const bytes = Buffer.from(secret)
  const hex = bytes.toString("hex")
  const base64 = bytes.toString("base64").replace(/=+$/, "")
  const escaped = JSON.stringify(secret).slice(1, -1)
  return [secret, escaped, encodeURIComponent(secret), base64, bytes.toString("base64url"), hex, hex.toUpperCase()]
}

/** Replaces every key that is leased now, and every secret inside it, by the id of its credential. */
export const redactLeased = (leases: Iterable<Lease>, text: string): string => {
  let redacted = text
  for (const lease of leases) {
    const { credential_id, provider } = lease.terms
    const key = lease.text()
    const secrets = secretsIn(provider, Redacted.make(key)).filter(
      (secret) => secret === key || secret.length >= shortest
    )
    const forms = Array.from(new Set(secrets.flatMap(formsOf))).sort((one, other) => other.length - one.length)
    for (const form of forms) redacted = redacted.replaceAll(form, () => `<${credential_id}>`)
  }
  return redacted
}
