// @ts-check
import { AEAD_AES_256_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_P256_HKDF_SHA256 } from "./hpke.js"
import { say } from "./parts.js"
import { keepTokens, tokens } from "./start.js"
import { members } from "./words.js"

/**
 * `About` describes the link, `Stored` a key that it has stored.
 * @typedef {Record<"link_id" | "account_id" | "account_name" | "workspace_id" | "workspace_name" | "expires_at", string> &
 *   Record<"provider" | "credential_id" | "return_url" | "public_key", string | null> &
 *   { purpose: "connect" | "replace" | "manage" | "view", providers: string[] }} About
 * @typedef {Record<"id" | "provider" | "label" | "created_at", string> &
 *   Record<"disabled" | "is_fallback" | "is_byok_only" | "is_required", boolean> &
 *   Record<"allowed_models" | "allowed_user_ids" | "allowed_api_key_hashes", string[] | null> &
 *   { name: string | null, declared_region: string | null, declared_zdr: boolean | null, sort_order: number }} Credential
 * @typedef {Pick<Credential, "provider" | "label">} Stored
 * @typedef {Record<"last_succeeded_at" | "last_failed_at" | "last_failure" | "last_refused_at" | "last_refused_code", string | null> & { state: string, last_refused_status: number | null,
 *   parked: { model: string | null, cause: string, until: string | null }[] }} Status
 */

const busy = "The service is busy. Nothing was done: try again in a moment."

/**
 * Sentences for owners, by status, for failures without issues. Status 0 means that no answer came.
 * @type {Record<number, string>}
 */
const sentences = {
  0: "No answer came. Check your connection, and try again.",
  404: "This key no longer exists: it was deleted.",
  429: busy,
  500: "Something went wrong, and what you asked for may or may not have been done. Try again in a moment.",
  503: busy
}

/** A request failed. The message is for the owner. `stored` is the key that a used link has stored. */
export class Refused extends Error {
  /** @param {number} status @param {any} [error] */
  constructor(status, error) {
    /** @type {{ path: (string | number)[], message: string }[]} */
    const issues = error?.metadata?.issues ?? []
    const isWorkspaceDeleted = issues.some(({ path }) => path[0] === "workspace_id")
    const sentencesOfIssues = issues.map(Refused.sentenceOf).join(" ")
    super(
      isWorkspaceDeleted
        ? "The workspace of this link was deleted."
        : sentencesOfIssues || (sentences[status] ?? error?.message ?? sentences[500])
    )
    this.status = status
    this.issues = issues
    /** @type {Stored | undefined} */
    this.stored = error?.metadata?.stored
    /** Whether the service may have done what was requested. */
    this.mayBeDone = status === 0 || status === 500
  }

  static sentenceOf = (/** @type {{ path: (string | number)[], message: string }} */ { message, path }) =>
    `${members[path[0] ?? ""] ?? path.join(" ")}${typeof path[1] === "number" ? `, line ${path[1] + 1},` : ""} ${message}.`
}

/** After how many milliseconds to say that the answer is slow, and after how many to give up. */
const [slowAfter, timeout] = [3000, 30_000]

/**
 * Sends a request to the links API; returns the `data` of the answer. Throws `Refused` if the request fails.
 * @param {string} method @param {string} path @param {object} [body] @param {string} [idempotency_key]
 * @returns {Promise<any>}
 */
export const ask = async (method, path, body, idempotency_key) => {
  let isSlow = false
  const slowTimer = setTimeout(() => {
    isSlow = true
    say("Still waiting for an answer.")
  }, slowAfter)
  const sent = fetch(`api/links/v1${path}`, {
    method,
    headers: {
      authorization: `Bearer ${tokens[0]}`,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...(idempotency_key === undefined ? {} : { "idempotency-key": idempotency_key })
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    credentials: "omit",
    cache: "no-store",
    signal: AbortSignal.timeout(timeout)
  })
  const [response, answer] = await sent
    .then(async (response) => /** @type {const} */ ([response, await response.json()]))
    .catch(() => {
      throw new Refused(0)
    })
    .finally(() => {
      clearTimeout(slowTimer)
      if (isSlow) say("")
    })
  if (response.ok) return answer.data
  throw new Refused(response.status, answer.error)
}

const fromBase64Url = (/** @type {string} */ text) =>
  Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0))

const toBase64Url = (/** @type {Uint8Array} */ bytes) =>
  btoa(String.fromCharCode(...bytes)).replace(/[+/=]/g, (one) => ({ "+": "-", "/": "_" })[one] ?? "")

/**
 * Reads the description of the link. Replaces the token of a lasting link by a new one that only this tab has: the
 * token in the address remains in the browser's history, and must not open the link again.
 * @returns {Promise<About>}
 */
export const open = async () => {
  const [token = "", successor] = tokens
  /** @type {About} */
  const about = await ask("GET", "/link").catch((error) => {
    if (error.status !== 401 || successor === undefined) throw error
    // The token was replaced, but the answer was lost.
    keepTokens([successor])
    return ask("GET", "/link")
  })
  const lasts = about.purpose === "manage" || about.purpose === "view"
  // The service's tokens have this prefix; those of this page have none.
  const isTokenOfAddress = tokens[0] === token && token.startsWith("byok_")
  if (lasts && isTokenOfAddress) {
    const newToken = successor ?? toBase64Url(crypto.getRandomValues(new Uint8Array(32)))
    keepTokens([token, newToken])
    await ask("PUT", "/link/token", { token: newToken })
    keepTokens([newToken])
  }
  return about
}

const suite = new CipherSuite(KEM_DHKEM_P256_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_256_GCM)

/**
 * Encrypts a key to the link's current public key. Binds it to the link, the provider, and the credential to replace.
 * @param {string} key @param {string} provider @param {string | null} credential_id
 */
const seal = async (key, provider, credential_id) => {
  /** @type {About} */
  const { account_id, link_id, public_key, workspace_id } = await ask("GET", "/link")
  const boundTo = ["byok/link/1", link_id, account_id, workspace_id, provider, credential_id]
  const encoder = new TextEncoder()
  const { ciphertext, encapsulatedSecret } = await suite.Seal(
    await suite.DeserializePublicKey(fromBase64Url(public_key ?? "")),
    encoder.encode(key),
    { aad: encoder.encode(JSON.stringify(boundTo)) }
  )
  return { enc: toBase64Url(encapsulatedSecret), ciphertext: toBase64Url(ciphertext) }
}

/**
 * Adds a key, or replaces the key of the credential `id`. Seals and sends it once more after a 409: another tab may
 * have used the link's key pair meanwhile.
 * @param {string} key @param {string} provider
 * @param {{ id: string } | { idempotency_key: string, name: string | null }} target
 * @returns {Promise<Credential>}
 */
export const store = async (key, provider, target) => {
  const send = async () => {
    if ("id" in target) {
      return ask("PATCH", `/byok/${target.id}`, { sealed_key: await seal(key, provider, target.id) })
    }
    const { idempotency_key, ...members } = target
    return ask("POST", "/byok", { provider, ...members, sealed_key: await seal(key, provider, null) }, idempotency_key)
  }
  return send().catch((error) => {
    if (error.status !== 409) throw error
    return send()
  })
}
