// @ts-check
/** Runs first and imports nothing: the token must leave the address even if the other scripts do not load. */

const addressToken = location.hash.slice(1)

/** Identifies the link of the current entry in the tab's history: a tab may open several links, and go back to each. */
export const link = addressToken === "" ? history.state?.link : String(Date.now())
history.replaceState(addressToken === "" ? history.state : { link }, "", location.pathname)

const storageKey = `byok ${link}`

/** @returns {string[]} */
const storedTokens = () => {
  try {
    return JSON.parse(sessionStorage.getItem(storageKey) ?? "[]")
  } catch {
    return []
  }
}

/** The link's token, and its successor until the service confirms the replacement: meanwhile either may be valid. */
export let tokens = addressToken === "" ? storedTokens() : [addressToken]

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
if (addressToken !== "") keepTokens(tokens)

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
