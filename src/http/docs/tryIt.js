// @ts-nocheck It runs in a browser, whose types the rest of the project must not see.

/** Sends a form of the page and shows the answer below it. */
const send = async (form) => {
  const output = form.querySelector("output")
  const headers = new Headers()
  const query = new URLSearchParams()
  let path = form.dataset.path
  for (const { dataset, name, value } of form.querySelectorAll("input")) {
    if (dataset.in === "path") path = path.replace(`{${name}}`, encodeURIComponent(value))
    else if (value !== "" && dataset.in === "query") query.set(name, value)
    else if (value !== "") headers.set(name, value)
  }
  const key = document.querySelector("#key input").value
  if ("key" in form.dataset && key !== "") headers.set("authorization", `Bearer ${key}`)
  const body = form.querySelector("textarea")?.value
  if (body !== undefined) headers.set("content-type", "application/json")
  const url = query.size > 0 ? `${path}?${query}` : path
  const response = await fetch(url, { method: form.dataset.method, headers, body, credentials: "omit" })
  const text = await response.text()
  const status = document.createElement("p")
  status.textContent = `${response.status}, X-Request-Id ${response.headers.get("x-request-id")}`
  const shown = document.createElement("pre")
  shown.textContent = text.startsWith("{") ? JSON.stringify(JSON.parse(text), null, 2) : text
  output.replaceChildren(status, shown)
}

for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault()
    if (form.id === "key") return
    const button = form.querySelector("button")
    button.disabled = true
    try {
      await send(form)
    } catch (error) {
      form.querySelector("output").textContent = `The request was not sent: ${error.message}`
    } finally {
      button.disabled = false
    }
  })
}
