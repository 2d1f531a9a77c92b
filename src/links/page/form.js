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
 * A field with its label, a hint, and what is wrong with it: a choice if it has options.
 * @param {{ id: string, label: string, hint?: any, error?: string | undefined, children?: any, [attribute: string]: any }} field
 */
export const Field = ({ children, error, hint, id, label, ...attributes }) => {
  const own = {
    id,
    name: id,
    "aria-describedby": `${id}-hint ${id}-error`,
    "aria-invalid": error && "true",
    ...attributes
  }
  return html`<p>
    <label for=${id}>${label}</label>
    ${
      children
        ? html`<select ...${own}>
            ${children}
          </select>`
        : html`<input ...${own} />`
    }
    ${hint && html`<small id=${`${id}-hint`}>${hint}</small>`}
    ${error && html`<small class="error" id=${`${id}-error`}>${error}</small>`}
  </p>`
}

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
    const [key, name] = [String(given.get("key")), String(given.get("name") ?? "").trim()]
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

  const errorOf = (/** @type {string} */ label, /** @type {string} */ id) => issues[id] && `${label} ${issues[id]}.`

  return html`
    <form ref=${form} onSubmit=${submit} novalidate autocomplete="off">
      ${
        provider === null
          ? html`<${Field} id="provider" label="Provider" error=${errorOf("Provider", "provider")} required>
              <option value="">Choose a provider</option>
              ${providers.map((slug) => html`<option key=${slug} value=${slug}>${slug}</option>`)}
            <//>`
          : html`<p>Provider: <strong>${provider}</strong></p>`
      }
      <${Field}
        id="key"
        label="API key"
        error=${errorOf("API key", "key")}
        hint=${label === "" ? "It is sealed in this browser before it is sent, and is never shown again." : html`It will be shown as <code>${label}</code>`}
        type="password"
        autocomplete="off"
        autocapitalize="off"
        spellcheck=${false}
        required
        onInput=${(/** @type {any} */ { target }) => setLabel(previewOf(target.value))}
      />
      ${
        credential === undefined &&
        html`<${Field}
          id="name"
          label="Name"
          error=${errorOf("Name", "name")}
          hint="Optional: how you tell this key from others."
          maxlength="255"
        />`
      }
      <div role="alert">${failure && html`<small class="error">${failure}</small>`}</div>
      <div class="row">
        <button class="primary" disabled=${busy}>${busy ? "Sending…" : credential ? "Replace key" : "Add key"}</button>
        ${cancel && html`<button type="button" onClick=${cancel}>Cancel</button>`}
      </div>
    </form>
  `
}
