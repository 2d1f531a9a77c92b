// @ts-check
/** The first script, which needs no other: the token leaves the address whatever becomes of the rest. */

const fromAddress = location.hash.slice(1)

/** Which link an entry of the tab's history is for: a tab may open several, and goes back to each. */
export const link = fromAddress === "" ? history.state?.link : String(Date.now())
history.replaceState(fromAddress === "" ? history.state : { link }, "", location.pathname)

const key = `byok ${link}`

/** @returns {string[]} */
const kept = () => {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "[]")
  } catch {
    return []
  }
}

/** The token of the link; a second one is to take its place, and may have done so already. */
export let tokens = fromAddress === "" ? kept() : [fromAddress]

/** Keeps tokens for this tab, so that it can be reloaded; in memory only, where a browser keeps nothing. @param {string[]} next */
export const keep = (next) => {
  tokens = next
  try {
    sessionStorage.setItem(key, JSON.stringify(next))
  } catch {}
}
if (fromAddress !== "") keep(tokens)

const isOther = () => location.hash !== "" || history.state?.link !== link
for (const event of ["hashchange", "popstate"]) addEventListener(event, () => isOther() && location.reload())

/** Whether the browser has what the page cannot do without; over plain HTTP none has it, and the page says so. */
const isAble = !isSecureContext || ("subtle" in crypto && "randomUUID" in crypto && "timeout" in AbortSignal)

const load = () => (isAble ? import("./app.js") : Promise.reject())
load().catch(() => {
  const again = Object.assign(document.createElement("button"), { textContent: "Try again" })
  again.addEventListener("click", () => location.reload())
  const said =
    "This page could not be loaded. Check your connection; if that is no help, try a current version of another browser."
  document
    .querySelector(".loading")
    ?.replaceWith(Object.assign(document.createElement("p"), { role: "alert", textContent: said }), again)
})
