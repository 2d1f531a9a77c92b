// @ts-check
/** Runs first and imports nothing: the token must leave the address even if the other scripts do not load. */

const addressToken = location.hash.slice(1)

/** Identifies the link of the current entry in the tab's history: a tab may open several links, and go back to each. */
export const link = addressToken === "" ? history.state?.link : String(Date.now())
history.replaceState(addressToken === "" ? history.state : { link }, "", location.pathname)

/** Reads what this tab keeps for the link under a name; null if it keeps nothing. @param {string} name */
const read = (name) => {
  try {
    return JSON.parse(sessionStorage.getItem(`byok ${link}${name}`) ?? "null")
  } catch {
    return null
  }
}

/**
 * Keeps a value for this tab, so that it can be reloaded, unless the browser stores nothing.
 * @param {string} name @param {unknown} value
 */
const keep = (name, value) => {
  try {
    sessionStorage.setItem(`byok ${link}${name}`, JSON.stringify(value))
  } catch {}
}

/**
 * The link's token, and its successor until the service confirms the replacement: meanwhile either may be valid.
 * @type {string[]}
 */
export let tokens = addressToken === "" ? (read("") ?? []) : [addressToken]

export const keepTokens = (/** @type {string[]} */ next) => {
  tokens = next
  keep("", next)
}
if (addressToken !== "") keepTokens(tokens)

/**
 * The idempotency keys under which API keys may have been stored, because no definite answer came. By the id of the
 * credential to replace, which is empty for a create.
 * @type {Record<string, string | undefined>}
 */
export const attempts = read(" attempts") ?? {}

/** Keeps an attempt, or removes it. @param {string} id @param {string} [idempotency_key] */
export const keepAttempt = (id, idempotency_key) => {
  attempts[id] = idempotency_key
  keep(" attempts", attempts)
}

const isOtherLink = () => location.hash !== "" || history.state?.link !== link
for (const event of ["hashchange", "popstate"]) addEventListener(event, () => isOtherLink() && location.reload())

/** Whether the browser can run the page. True over plain HTTP, where the page says only that it needs HTTPS. */
const canLoad = !isSecureContext || ("subtle" in crypto && "randomUUID" in crypto && "timeout" in AbortSignal)

const load = () => (canLoad ? import("./app.js") : Promise.reject())
load().catch(() => {
  const retryButton = Object.assign(document.createElement("button"), { textContent: "Try again" })
  retryButton.addEventListener("click", () => location.reload())
  const message =
    "This page could not be loaded. Check your connection; if that is no help, try a current version of another browser."
  document
    .querySelector(".loading")
    ?.replaceWith(Object.assign(document.createElement("p"), { role: "alert", textContent: message }), retryButton)
})
