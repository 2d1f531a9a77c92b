// @ts-check
import { AEAD_AES_256_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_P256_HKDF_SHA256 } from "./hpke.js"

/**
 * What the link is for.
 * @typedef {Record<"link_id" | "account_id" | "account_name" | "workspace_id" | "workspace_name" | "expires_at", string> &
 *   Record<"provider" | "credential_id" | "return_url" | "public_key", string | null> &
 *   { purpose: "connect" | "replace" | "manage" | "view", providers: string[] }} About
 * @typedef {Record<"id" | "provider" | "label" | "created_at", string> & { name: string | null, disabled: boolean,
 *   is_fallback: boolean, sort_order: number }} Credential
 * @typedef {Record<"last_succeeded_at" | "last_failed_at" | "last_failure", string | null> & { state: string,
 *   parked: { model: string | null, cause: string, until: string | null }[] }} Status
 */

/** In memory only: the address is forgotten at once. */
const token = location.hash.slice(1)
history.replaceState(null, "", location.pathname)

export const hasToken = token !== ""

/** What the service refused, in its words; `issues` by field. */
export class Refused extends Error {
  /** @param {number} status @param {string} message @param {{ path: string[], message: string }[]} issues */
  constructor(status, message, issues) {
    super(message)
    this.status = status
    this.issues = issues
  }
}

/** @param {string} method @param {string} path @param {object} [body] @returns {Promise<any>} */
export const ask = async (method, path, body) => {
  const sent = fetch(`api/links/v1${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(body === undefined ? {} : { "content-type": "application/json" })
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    credentials: "omit",
    cache: "no-store"
  })
  const response = await sent.catch(() => {
    throw new Refused(0, "No answer came. Check your connection, and try again.", [])
  })
  const answer = await response.json().catch(() => ({}))
  if (response.ok) return answer.data
  const { message = "Something went wrong. Try again in a moment.", metadata } = answer.error ?? {}
  throw new Refused(response.status, message, metadata?.issues ?? [])
}

const suite = new CipherSuite(KEM_DHKEM_P256_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_256_GCM)

const bytesOf = (/** @type {string} */ text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0))

const textOf = (/** @type {Uint8Array} */ bytes) =>
  btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "")

/** @param {string} key @param {string} provider @param {string | null} credential_id */
const seal = async (key, provider, credential_id) => {
  /** @type {About} */
  const { account_id, link_id, public_key, workspace_id } = await ask("GET", "/link")
  const bound = ["byok/link/1", link_id, account_id, workspace_id, provider, credential_id]
  const encoder = new TextEncoder()
  const { ciphertext, encapsulatedSecret } = await suite.Seal(
    await suite.DeserializePublicKey(bytesOf(public_key ?? "")),
    encoder.encode(key),
    { aad: encoder.encode(JSON.stringify(bound)) }
  )
  return { enc: textOf(encapsulatedSecret), ciphertext: textOf(ciphertext) }
}

/**
 * Adds a key under a name, or replaces that of a credential, which keeps its name. If the key pair went to another tab meanwhile, it is sealed to the next one.
 * @param {string} key @param {string} provider @param {string | null} name @param {string | null} [id]
 * @returns {Promise<Credential>}
 */
export const store = async (key, provider, name, id = null) => {
  const send = async () => {
    const sealed_key = await seal(key, provider, id)
    return id === null
      ? ask("POST", "/byok", { provider, name, sealed_key })
      : ask("PATCH", `/byok/${id}`, { sealed_key })
  }
  return send().catch((error) => {
    if (error.status !== 409) throw error
    return send()
  })
}
