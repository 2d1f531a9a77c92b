/**
 * Sends a form of the page and shows the answer below it.
 *
 * @param {HTMLFormElement} form
 */
const send = async (form) => {
  const headers = new Headers()
  const query = new URLSearchParams()
  let path = form.dataset["path"] ?? ""
  for (const { dataset, name, value } of form.querySelectorAll("input")) {
    if (dataset["in"] === "path") path = path.replace(`{${name}}`, encodeURIComponent(value))
    else if (dataset["in"] === "body") continue
    else if (value !== "" && dataset["in"] === "query") query.set(name, value)
    else if (value !== "") headers.set(name, value)
  }
  const key = new FormData(document.forms.namedItem("key") ?? undefined).get("key") ?? ""
  if ("key" in form.dataset && key !== "") headers.set("authorization", `Bearer ${key}`)
  const body = form.querySelector("textarea")?.value ?? null
  if (body !== null) headers.set("content-type", "application/json")
  const url = query.size > 0 ? `${path}?${query}` : path
  const response = await fetch(url, { method: form.dataset["method"] ?? "GET", headers, body, credentials: "omit" })
  const text = await response.text()
  const status = document.createElement("p")
  status.textContent = `${response.status}, X-Request-Id ${response.headers.get("x-request-id")}`
  const shown = document.createElement("pre")
  shown.tabIndex = 0
  shown.textContent = text.startsWith("{") ? JSON.stringify(JSON.parse(text), null, 2) : text
  form.querySelector("output")?.replaceChildren(status, shown)
}

for (const origin of document.querySelectorAll(".origin")) origin.textContent = location.origin

for (const form of document.querySelectorAll("form")) {
  // A member of the body that has a field of its own is written into the body.
  form.addEventListener("input", ({ target }) => {
    const body = form.querySelector("textarea")
    if (!(target instanceof HTMLInputElement) || target.dataset["in"] !== "body" || body === null) return
    try {
      body.value = JSON.stringify({ ...JSON.parse(body.value), [target.name]: target.value }, null, 2)
    } catch {
      // The body is being edited.
    }
  })
  form.addEventListener("submit", async (event) => {
    event.preventDefault()
    if (form.id === "key") return
    if (form.dataset["method"] === "DELETE" && !confirm("Delete the credential and its key for good?")) return
    const button = form.querySelector("button")
    button?.setAttribute("disabled", "")
    try {
      await send(form)
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      form.querySelector("output")?.replaceChildren(`The request was not sent: ${reason}`)
    } finally {
      button?.removeAttribute("disabled")
    }
  })
}
