import { inspect } from "node:util"
import { Redacted } from "effect"
import type { CredentialReference } from "../../domain/Identifiers.ts"
import type { Health } from "../../domain/routing/Health.ts"
import type { TokenTerms } from "../tokens/Tokens.ts"
import { secretPartsOf } from "../tokens/mint.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { Region } from "../../domain/Region.ts"
import { redactKey } from "./redactKey.ts"

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
  /** The request that the attempt is for. Only this request may repeat a trial. */
  readonly request_id: string
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

  /** Copies an opened key or its token into a buffer outside of Node's shared pool. */
  fill(opened: Uint8Array, token?: TokenTerms): void {
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
