// @ts-check
/** Runs first and imports nothing: the token must leave the address even if the other scripts do not load. */

const fromAddress = location.hash.slice(1)

/** Identifies the link of an entry in the tab's history: a tab may open several links, and go back to each. */
export const link = fromAddress === "" ? history.state?.link : String(Date.now())
history.replaceState(fromAddress === "" ? history.state : { link }, "", location.pathname)

const key = `byok ${link}`

/** @returns {string[]} */
const storedTokens = () => {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "[]")
  } catch {
    return []
  }
}

/** The link's token, then perhaps its successor, which has already replaced it if an answer was lost. */
export let tokens = fromAddress === "" ? storedTokens() : [fromAddress]

/** Stores tokens for this tab, so that the tab can be reloaded; in memory only if the browser stores nothing. @param {string[]} next */
export const keepTokens = (next) => {
  tokens = next
  try {
    sessionStorage.setItem(key, JSON.stringify(next))
  } catch {}
}
if (fromAddress !== "") keepTokens(tokens)

const isOtherLink = () => location.hash !== "" || history.state?.link !== link
for (const event of ["hashchange", "popstate"]) addEventListener(event, () => isOtherLink() && location.reload())

/** Whether the browser has the APIs that the page needs. Over plain HTTP no browser has them, and the page says so. */
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
