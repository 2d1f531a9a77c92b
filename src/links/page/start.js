// @ts-check
/** Runs first and imports nothing: the token must leave the address even if the other scripts do not load. */

const fromAddress = location.hash.slice(1)

/** Identifies the link of the current entry in the tab's history: a tab may open several links, and go back to each. */
export const link = fromAddress === "" ? history.state?.link : String(Date.now())
history.replaceState(fromAddress === "" ? history.state : { link }, "", location.pathname)

const storageKey = `byok ${link}`

/** @returns {string[]} */
const storedTokens = () => {
  try {
    return JSON.parse(sessionStorage.getItem(storageKey) ?? "[]")
  } catch {
    return []
  }
}

/** The link's token, then perhaps a new token: if the answer was lost, it is not known which of them is valid. */
export let tokens = fromAddress === "" ? storedTokens() : [fromAddress]

/**
 * Stores tokens for this tab, so that it can be reloaded. If the browser stores nothing, keeps them in memory only.
 * @param {string[]} next
 */
export const keepTokens = (next) => {
  tokens = next
  try {
    sessionStorage.setItem(storageKey, JSON.stringify(next))
  } catch {}
}
if (fromAddress !== "") keepTokens(tokens)

const isOtherLink = () => location.hash !== "" || history.state?.link !== link
for (const event of ["hashchange", "popstate"]) addEventListener(event, () => isOtherLink() && location.reload())

/** Whether the browser has the APIs that the page needs. Over plain HTTP none has them, which the page explains. */
const isSupported = !isSecureContext || ("subtle" in crypto && "randomUUID" in crypto && "timeout" in AbortSignal)

const load = () => (isSupported ? import("./app.js") : Promise.reject())
load().catch(() => {
  const retryButton = Object.assign(document.createElement("button"), { textContent: "Try again" })
  retryButton.addEventListener("click", () => location.reload())
  const message =
    "This page could not be loaded. Check your connection; if that is no help, try a current version of another browser."
  document
    .querySelector(".loading")
    ?.replaceWith(Object.assign(document.createElement("p"), { role: "alert", textContent: message }), retryButton)
})
