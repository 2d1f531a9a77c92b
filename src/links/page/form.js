// @ts-check
import { ask, Refused, store } from "./api.js"
import { keyFaultIn } from "./keyFault.js"
import { labelOf } from "./label.js"
import { Field } from "./parts.js"
import { html, useEffect, useRef, useState } from "./preact.js"
import { doubtOf, KeyPageLink, multilineHintOf, providerName, slugOf, TokenValidity } from "./providers.js"
import { attempts, keepAttempt } from "./start.js"

/** @typedef {import("./api.js").Credential} Credential */
/** @typedef {import("./api.js").Stored} Stored */

/**
 * Reads a path of the API, and shows the answer with `children`, or the error with a button to retry. Reads again when
 * `version` changes.
 * @param {{ path: string, version?: any, children: (answer: any) => any }} props
 */
export const Read = ({ children, path, version }) => {
  const [answer, set] = useState(/** @type {any} */ (undefined))
  const read = () => void ask("GET", path).then(set, set)
  useEffect(read, [path, version])
  if (answer === undefined) return html`<p role="status">Loading…</p>`
  if (!(answer instanceof Error)) return children(answer)
  const retry = () => {
    document.querySelector("h1")?.focus()
    set(undefined)
    read()
  }
  return html`<p class="error" role="alert">${answer.message}</p>
    <button type="button" onClick=${retry}>Try again</button>`
}

/** Keeps the issues of a form's fields, and the failure of the form as a whole. */
export const useRefusal = () => {
  const form = useRef(/** @type {HTMLFormElement | null} */ (null))
  const [{ failure, issues }, set] = useState({ failure: "", issues: /** @type {Record<string, string>} */ ({}) })
  const fieldOf = (/** @type {unknown} */ name) => {
    const field = form.current?.elements.namedItem(String(name))
    return field instanceof HTMLElement ? /** @type {HTMLInputElement} */ (field) : null
  }
  /** Shows issues by field, and a failure of the whole form. Focuses the first field that has an issue. */
  const showIssues = (/** @type {Record<string, string>} */ issues, failure = "") => {
    set({ failure, issues })
    const field = fieldOf(Object.keys(issues)[0])
    field?.focus()
    field?.select?.()
  }
  return {
    form,
    issues,
    showIssues,
    /** Shows why sending the form failed. @param {unknown} error */
    showFailure: (error) => {
      if (!(error instanceof Refused))
        return showIssues({}, "This browser could not seal the key. Try another browser.")
      const issuesHere = error.issues.filter(({ path }) => fieldOf(path[0]) !== null)
      const areAllHere = issuesHere.length > 0 && issuesHere.length === error.issues.length
      const sentences = issuesHere.map((issue) => [issue.path[0], Refused.sentenceOf(issue)])
      showIssues(Object.fromEntries(sentences), areAllHere ? "" : error.message)
    },
    /** Clears the issue of a field, and the failure of the form. @param {string} name */
    clearIssue: (name) => set(({ issues: { [name]: _, ...issues } }) => ({ failure: "", issues })),
    alert: html`<div role="alert">${failure && html`<small class="error">${failure}</small>`}</div>`
  }
}

/** The label that a key will have; empty for JSON, whose label comes from one of its members. */
const previewOf = (/** @type {string} */ key) => (key === "" || /^\s*[[{]/.test(key) ? "" : labelOf(key))

/**
 * The form that adds a key, or replaces the key of `credential`.
 * @param {{ provider: string | null, providers: string[], credential?: Credential | undefined,
 *   onStored: (stored: Stored) => void, onClosed: (error: Refused) => void, cancel?: (() => void) | undefined }} props
 */
export const KeyForm = ({ cancel, credential, onClosed, onStored, provider, providers }) => {
  const { alert, form, issues, clearIssue, showIssues, showFailure } = useRefusal()
  const [busy, setBusy] = useState(false)
  const [key, keepKey] = useState("")
  const [chosen, choose] = useState(provider ?? undefined)
  /** The doubt that the last submission of this key showed. Submitting it again, despite the doubt, sends the key. */
  const [shownDoubt, setShownDoubt] = useState("")
  const setKey = (/** @type {string} */ entered) => {
    keepKey(entered)
    setShownDoubt("")
  }

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    if (busy) return
    const values = new FormData(form.current ?? undefined)
    const fault = keyFaultIn(key)
    const wrong = {
      ...(chosen === undefined && {
        provider: values.get("provider")
          ? "There is no such provider: choose one from the list."
          : "Provider is required."
      }),
      ...(key === "" && { key: "API key is required." }),
      ...(fault !== undefined && { key: Refused.sentenceOf({ path: ["key"], message: fault }) })
    }
    showIssues(wrong)
    if (chosen === undefined || key === "" || fault !== undefined) return
    const doubt = doubtOf(key, chosen) ?? ""
    setShownDoubt(doubt)
    if (doubt !== "" && doubt !== shownDoubt) return showIssues({}, `${doubt} If it is right, press the button again.`)
    setBusy(true)
    const id = credential?.id ?? ""
    /** The idempotency key of an earlier try, which may have stored the API key. */
    const earlier = attempts[id]
    const idempotency_key = earlier ?? crypto.randomUUID()
    keepAttempt(id, idempotency_key)
    try {
      const name = String(values.get("name") ?? "").trim() || null
      const stored = await store(key, chosen, credential ?? { idempotency_key, name })
      keepAttempt(id)
      onStored(stored)
    } catch (error) {
      setBusy(false)
      if (!(error instanceof Refused)) return showFailure(error)
      // The link is closed, perhaps because the earlier try stored the key.
      if (error.status === 401) return error.stored && earlier ? onStored(error.stored) : onClosed(error)
      if (error.mayBeDone) return showIssues({}, `${error.message} What is sent again is stored once.`)
      // Another refusal does not tell what became of the earlier try.
      if (!earlier || error.status === 409) keepAttempt(id)
      // The earlier try stored another key under the same idempotency key.
      if (error.status === 409 && earlier && !credential)
        return showIssues({}, "The key that you sent before was stored. Check your keys before you add this one.")
      showFailure(error)
    }
  }

  const change = (/** @type {any} */ { target }) => {
    if (target.name === "key") setKey(target.value)
    if (target.name === "provider") choose(slugOf(providers, target.value))
    clearIssue(target.name)
  }
  const readFile = async (/** @type {any} */ { target }) => {
    const [file] = target.files
    target.value = ""
    clearIssue("key")
    if (file?.size > 100_000) showIssues({ file: "This file is too large to be a key." })
    else if (file) setKey((await file.text()).trim())
  }

  const multilineHint = chosen && multilineHintOf(chosen)
  const doubt = key.length >= 8 && chosen ? doubtOf(key, chosen) : undefined
  const label = previewOf(key)
  return html`
    <form ref=${form} onSubmit=${submit} onInput=${change} novalidate autocomplete="off">
      ${
        provider === null
          ? html`<${Field}
                id="provider"
                label="Provider"
                error=${issues["provider"]}
                hint=${!chosen && "Type a part of its name, then choose it from the list."}
                list="providers"
                placeholder="OpenAI, Anthropic, …"
                autocomplete="off"
                required
              />
              <datalist id="providers">
                ${providers.map((slug) => html`<option key=${slug} value=${providerName(slug)}>${slug}</option>`)}
              </datalist>`
          : html`<p>Provider: <strong>${providerName(provider)}</strong></p>`
      }
      ${chosen && html`<${KeyPageLink} of=${chosen} />`}
      <${Field}
        id="key"
        label="API key"
        error=${issues["key"]}
        hint=${html`${multilineHint && `${multilineHint} `}${label === "" ? "It is sealed in this browser before it is sent, and is never shown again." : html`It will be shown as <code>${label}</code>`}`}
        multiline=${multilineHint}
        rows="5"
        class="secret"
        type=${multilineHint ? undefined : "password"}
        autocomplete="off"
        autocapitalize="off"
        spellcheck=${false}
        value=${key}
        required
      />
      <div role="status">${doubt && doubt !== shownDoubt && html`<small class="warn">${doubt}</small>`}</div>
      ${multilineHint && html`<${Field} id="file" label="Or take it from a file" type="file" error=${issues["file"]} onChange=${readFile} />`}
      ${
        credential
          ? html`<${TokenValidity} of=${credential.provider} />`
          : html`<${Field}
              id="name"
              label="Name"
              error=${issues["name"]}
              hint="Optional: how you tell this key from others."
              maxlength="255"
            />`
      }
      ${alert}
      <div class="row">
        <button class="primary" aria-disabled=${String(busy)}>
          ${busy ? "Sending…" : credential ? "Replace key" : "Add key"}
        </button>
        ${cancel && html`<button type="button" onClick=${cancel}>Cancel</button>`}
      </div>
    </form>
  `
}
