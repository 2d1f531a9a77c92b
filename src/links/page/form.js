// @ts-check
import { Refused, store } from "./api.js"
import { labelOf } from "./label.js"
import { html, useEffect, useRef, useState } from "./preact.js"

/** @typedef {import("./api.js").Credential} Credential */

/** A heading that has the focus when its view opens, so that a screen reader begins there. */
export const Heading = (/** @type {{ children?: any }} */ { children }) => {
  const heading = useRef(/** @type {HTMLElement | null} */ (null))
  useEffect(() => heading.current?.focus(), [])
  return html`<h1 ref=${heading} tabindex="-1">${children}</h1>`
}

export const Time = (/** @type {{ at: string | null | undefined }} */ { at }) =>
  at
    ? html`<time datetime=${at}
        >${new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })}</time
      >`
    : html`<span>never</span>`

/**
 * A field with its label, a hint, and what is wrong with it.
 * @param {{ id: string, label: string, hint?: any, error?: string | undefined, children?: any }} field
 */
export const Field = ({ children, error, hint, id, label }) => html`
  <div class="field">
    <label for=${id}>${label}</label>
    ${children} ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    ${error && html`<p class="error" id=${`${id}-error`}>${label} ${error}.</p>`}
  </div>
`

/** @param {string} id @param {string | undefined} error */
const described = (id, error) => ({
  id,
  name: id,
  "aria-describedby": `${id}-hint ${id}-error`,
  ...(error === undefined ? {} : { "aria-invalid": "true" })
})

/** What is shown of a key; nothing of JSON, whose label is that of a secret inside. */
const previewOf = (/** @type {string} */ key) => (key === "" || /^\s*[[{]/.test(key) ? "" : labelOf(key))

/**
 * The form for a key, which is new unless there is a credential.
 * @param {{ provider: string | null, providers: string[], credential?: Credential | undefined,
 *   done: (credential: Credential) => void, closed: (error: Refused) => void, cancel?: (() => void) | undefined }} props
 */
export const KeyForm = ({ cancel, closed, credential, done, provider, providers }) => {
  const [issues, setIssues] = useState(/** @type {Record<string, string>} */ ({}))
  const [failure, setFailure] = useState("")
  const [busy, setBusy] = useState(false)
  const [label, setLabel] = useState("")
  const form = useRef(/** @type {HTMLFormElement | null} */ (null))
  useEffect(() => /** @type {HTMLElement | null} */ (form.current?.querySelector("[aria-invalid]"))?.focus(), [issues])

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    const given = new FormData(form.current ?? undefined)
    const [key, name] = [String(given.get("key")), String(given.get("name")).trim()]
    const chosen = provider ?? String(given.get("provider"))
    const missing = {
      ...(chosen === "" ? { provider: "is required" } : {}),
      ...(key === "" ? { key: "is required" } : {})
    }
    if (Object.keys(missing).length > 0) return setIssues(missing)
    setBusy(true)
    setFailure("")
    const field = /** @type {HTMLInputElement} */ (form.current?.elements.namedItem("key"))
    field.value = ""
    setLabel("")
    try {
      done(await store(key, chosen, name === "" ? null : name, credential?.id))
    } catch (error) {
      setBusy(false)
      if (!(error instanceof Refused)) return setFailure("This browser could not seal the key. Try another one.")
      if (error.status === 401) return closed(error)
      setIssues(Object.fromEntries(error.issues.map(({ message, path }) => [path[0], message])))
      if (!error.issues.some(({ path }) => ["provider", "key", "name"].includes(path[0] ?? "")))
        setFailure(error.message)
    }
  }

  return html`
    <form ref=${form} onSubmit=${submit} novalidate autocomplete="off">
      ${
        provider === null
          ? html`<${Field} id="provider" label="Provider" error=${issues["provider"]}>
              <select ...${described("provider", issues["provider"])} required>
                <option value="">Choose a provider</option>
                ${providers.map((slug) => html`<option key=${slug} value=${slug}>${slug}</option>`)}
              </select>
            <//>`
          : html`<div class="field"><span class="name">Provider</span><span class="given">${provider}</span></div>`
      }
      <${Field}
        id="key"
        label="API key"
        error=${issues["key"]}
        hint=${label === "" ? "It is sealed in this browser before it is sent, and is never shown again." : html`It will be shown as <code>${label}</code>`}
      >
        <input
          ...${described("key", issues["key"])}
          type="password"
          autocomplete="off"
          autocapitalize="off"
          spellcheck=${false}
          required
          onInput=${(/** @type {any} */ { target }) => setLabel(previewOf(target.value))}
        />
      <//>
      <${Field} id="name" label="Name" error=${issues["name"]} hint="Optional: how you tell this key from others.">
        <input ...${described("name", issues["name"])} maxlength="255" defaultValue=${credential?.name ?? ""} />
      <//>
      <div role="alert">${failure && html`<p class="error">${failure}</p>`}</div>
      <div class="actions">
        <button class="primary" disabled=${busy}>${busy ? "Sending…" : credential ? "Replace key" : "Add key"}</button>
        ${cancel && html`<button type="button" onClick=${cancel}>Cancel</button>`}
      </div>
    </form>
  `
}
