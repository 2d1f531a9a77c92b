// @ts-check
import { ask, Refused, store } from "./api.js"
import { labelOf } from "./label.js"
import { Field } from "./parts.js"
import { html, useEffect, useRef, useState } from "./preact.js"
import { AfterLife, doubtOf, KeyPlace, providerName, shapeOf, slugOf } from "./providers.js"

/** @typedef {import("./api.js").Credential} Credential */
/** @typedef {import("./api.js").Stored} Stored */

/** Shows what the service has at a path, or why it cannot be read, with a button that asks again. @param {{ path: string, at?: any, children: (answer: any) => any }} props */
export const Read = ({ at, children, path }) => {
  const [answer, set] = useState(/** @type {any} */ (undefined))
  const read = () => void ask("GET", path).then(set, set)
  useEffect(read, [path, at])
  if (answer === undefined) return html`<p role="status">Loading…</p>`
  if (!(answer instanceof Error)) return children(answer)
  const again = () => {
    document.querySelector("h1")?.focus()
    set(undefined)
    read()
  }
  return html`<p class="error" role="alert">${answer.message}</p>
    <button type="button" onClick=${again}>Try again</button>`
}

/** Keeps what is wrong with a form: at its fields, the first of which gets the focus, and elsewhere. */
export const useRefusal = () => {
  const form = useRef(/** @type {HTMLFormElement | null} */ (null))
  const [{ failure, issues }, set] = useState({ failure: "", issues: /** @type {Record<string, string>} */ ({}) })
  const fieldOf = (/** @type {unknown} */ name) => {
    const field = form.current?.elements.namedItem(String(name))
    return field instanceof HTMLElement ? /** @type {HTMLInputElement} */ (field) : null
  }
  const refuse = (/** @type {Record<string, string>} */ issues, failure = "") => {
    set({ failure, issues })
    const field = fieldOf(Object.keys(issues)[0])
    field?.focus()
    field?.select?.()
  }
  return {
    form,
    issues,
    refuse,
    /** What the service refused, or what went wrong before. @param {unknown} error */
    refused: (error) => {
      if (!(error instanceof Refused)) return refuse({}, "This browser could not seal the key. Try another one.")
      const here = error.issues.filter(({ path }) => fieldOf(path[0]) !== null)
      refuse(
        Object.fromEntries(here.map((issue) => [issue.path[0], Refused.sentenceOf(issue)])),
        here.length < Math.max(error.issues.length, 1) ? error.message : ""
      )
    },
    /** A field that is changed is not wrong any more. @param {string} name */
    mend: (name) => set(({ issues: { [name]: _, ...issues } }) => ({ failure: "", issues })),
    alert: html`<div role="alert">${failure && html`<small class="error">${failure}</small>`}</div>`
  }
}

/** What is shown of a key; nothing of JSON, whose label is that of a secret inside. */
const previewOf = (/** @type {string} */ key) => (key === "" || /^\s*[[{]/.test(key) ? "" : labelOf(key))

/**
 * The form for a key, which is new unless there is a credential.
 * @param {{ provider: string | null, providers: string[], credential?: Credential | undefined, done: (stored: Stored) => void,
 *   closed: (error: Refused) => void, cancel?: (() => void) | undefined }} props
 */
export const KeyForm = ({ cancel, closed, credential, done, provider, providers }) => {
  const { alert, form, issues, mend, refuse, refused } = useRefusal()
  const [busy, setBusy] = useState(false)
  const [key, setKey] = useState("")
  const [chosen, choose] = useState(provider ?? undefined)
  const [doubt, setDoubt] = useState("")
  /** Names what is sent until it is known what became of it, so that it is stored once. */
  const attempt = useRef({ id: crypto.randomUUID(), isOpen: false })

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    if (busy) return
    const given = new FormData(form.current ?? undefined)
    const missing = {
      ...(chosen === undefined && {
        provider: given.get("provider")
          ? "There is no such provider: choose one from the list."
          : "Provider is required."
      }),
      ...(key === "" && { key: "API key is required." })
    }
    refuse(missing)
    if (chosen === undefined || key === "") return
    const next = doubtOf(key, chosen) ?? ""
    setDoubt(next)
    if (next !== "" && next !== doubt) return refuse({}, `${next} If it is right, press the button again.`)
    setBusy(true)
    try {
      const name = String(given.get("name") ?? "").trim() || null
      done(await store(key, chosen, credential ? { id: credential.id } : { idempotency_key: attempt.current.id, name }))
    } catch (error) {
      setBusy(false)
      if (!(error instanceof Refused)) return refused(error)
      const { isOpen: wasOpen } = attempt.current
      if (error.status === 401) return error.stored && wasOpen ? done(error.stored) : closed(error)
      attempt.current = error.isOpen ? { ...attempt.current, isOpen: true } : { id: crypto.randomUUID(), isOpen: false }
      if (error.isOpen) return refuse({}, `${error.message} What is sent again is stored once.`)
      if (error.status === 409 && wasOpen && !credential)
        return refuse({}, "What you sent before was stored. Look at your keys before you add this one.")
      refused(error)
    }
  }

  const change = (/** @type {any} */ { target }) => {
    if (target.name === "key") setKey(target.value)
    if (target.name === "provider") choose(slugOf(providers, target.value))
    mend(target.name)
  }
  const readFile = async (/** @type {any} */ { target }) => {
    const [file] = target.files
    target.value = ""
    mend("key")
    if (file?.size > 100_000) refuse({ file: "This file is too large to be a key." })
    else if (file) setKey((await file.text()).trim())
  }

  const shape = chosen && shapeOf(chosen)
  const doubtful = key.length >= 8 && chosen ? doubtOf(key, chosen) : undefined
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
      ${chosen && html`<${KeyPlace} of=${chosen} />`}
      <${Field}
        id="key"
        label="API key"
        error=${issues["key"]}
        hint=${html`${shape && `${shape} `}${label === "" ? "It is sealed in this browser before it is sent, and is never shown again." : html`It will be shown as <code>${label}</code>`}`}
        multiline=${shape}
        rows="5"
        class="secret"
        type=${shape ? undefined : "password"}
        autocomplete="off"
        autocapitalize="off"
        spellcheck=${false}
        value=${key}
        required
      />
      <div role="status">${doubtful && doubtful !== doubt && html`<small class="warn">${doubtful}</small>`}</div>
      ${shape && html`<${Field} id="file" label="Or take it from a file" type="file" error=${issues["file"]} onChange=${readFile} />`}
      ${
        credential
          ? html`<${AfterLife} of=${credential.provider} />`
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
