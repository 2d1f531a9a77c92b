// @ts-check
import { Refused, store } from "./api.js"
import { labelOf } from "./label.js"
import { html, useEffect, useRef, useState } from "./preact.js"
import { AfterLife, doubtOf, KeyPlace, providerName, shapeOf, slugOf } from "./providers.js"

/** @typedef {import("./api.js").Credential} Credential */
/** @typedef {import("./api.js").Stored} Stored */

/** Characters that are not seen, or turn around what is seen beside them. */
const unseen = /[\p{Cc}\p{Bidi_Control}\u200B\u2028\u2029\u2060\uFEFF]/gu

/** A text that others chose, such as a name: it stays by itself, and shows what it hides. */
export const Name = (/** @type {{ of: string }} */ { of }) =>
  html`<bdi
    >${of.replace(unseen, (one) => `[U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`)}</bdi
  >`

/** @type {(text: any) => void} */
let tell = () => {}

/** Says what became of an act, where it is seen and heard: at the lower edge of the window. */
export const say = (/** @type {any} */ text) => tell(text)

export const Said = () => {
  const [said, set] = useState(/** @type {any} */ (""))
  useEffect(() => void (tell = set), [])
  return html`<div class="said" role="status">${said && html`<p class="notice">${said}</p>`}</div>`
}

/** Whether something has gone on for so long that a person begins to wonder. */
export const useSlow = (/** @type {boolean} */ busy) => {
  const [slow, set] = useState(false)
  useEffect(() => {
    if (!busy) return set(false)
    const timer = setTimeout(set, 3000, true)
    return () => clearTimeout(timer)
  }, [busy])
  return slow
}

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

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const units = [
  ["hour", 3600],
  ["minute", 60],
  ["second", 1]
]

/** A time as one tells it, on its day: how long ago, or how long until then; it goes on while one looks. @param {{ at: string, over?: () => void }} props */
export const Ago = ({ at, over = () => {} }) => {
  const [now, set] = useState(Date.now())
  const exact = Math.ceil((Date.parse(at) - now) / 1000)
  const seconds = exact < 0 && exact > -60 ? 0 : exact
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? /** @type {const} */ (["second", 1])
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  useEffect(() => {
    if (exact <= 0 && exact % 5 === 0) over()
  }, [exact])
  if (Math.abs(seconds) > 86_400) return html`<${Time} at=${at} />`
  const told = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(Math.trunc(seconds / size), unit)
  return html`<time datetime=${at} title=${new Date(at).toLocaleString()}>${told}</time>`
}

/**
 * A field with its label, a hint, and what is wrong with it: a choice if it has options, or of several lines.
 * @param {{ id: string, label: string, hint?: any, error?: string | undefined, children?: any, multiline?: any, [attribute: string]: any }} field
 */
export const Field = ({ children, error, hint, id, label, multiline, ...attributes }) => {
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
        : multiline
          ? html`<textarea ...${own}></textarea>`
          : html`<input ...${own} />`
    }
    ${hint && html`<small id=${`${id}-hint`}>${hint}</small>`}
    ${error && html`<small class="error" id=${`${id}-error`}>${error}</small>`}
  </p>`
}

/** What was refused: at the fields that a form has, by their names, and elsewhere. @param {unknown} error @param {HTMLFormElement | null} form */
export const refusing = (error, form) => {
  if (!(error instanceof Refused)) return { here: {}, elsewhere: String(error) }
  const { issues, message } = error
  const here = issues.filter(({ path }) => form?.elements.namedItem(String(path[0])) instanceof HTMLElement)
  return {
    here: Object.fromEntries(here.map((issue) => [issue.path[0], Refused.sentenceOf(issue)])),
    elsewhere: here.length < Math.max(issues.length, 1) ? message : ""
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
  const [issues, setIssues] = useState(/** @type {Record<string, string>} */ ({}))
  const [failure, setFailure] = useState("")
  const [busy, setBusy] = useState(false)
  const [key, setKey] = useState("")
  const [chosen, choose] = useState(provider ?? undefined)
  const [doubt, setDoubt] = useState("")
  const slow = useSlow(busy)
  const form = useRef(/** @type {HTMLFormElement | null} */ (null))
  /** Names what is sent until it is known what became of it, so that it is stored once. */
  const attempt = useRef({ id: crypto.randomUUID(), isOpen: false })
  const refuse = (/** @type {Record<string, string>} */ issues, failure = "") => {
    setIssues(issues)
    setFailure(failure)
    const [first] = Object.keys(issues)
    const field = /** @type {HTMLInputElement | null} */ (first === undefined ? null : document.getElementById(first))
    field?.focus()
    field?.select?.()
  }

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    if (busy) return
    const given = new FormData(form.current ?? undefined)
    const [asked, name] = [String(given.get("provider") ?? ""), String(given.get("name") ?? "").trim()]
    const missing = {
      ...(asked === "" && chosen === undefined ? { provider: "Provider is required." } : {}),
      ...(asked !== "" && chosen === undefined
        ? { provider: "There is no such provider: choose one of the list." }
        : {}),
      ...(key === "" ? { key: "API key is required." } : {})
    }
    refuse(missing)
    if (chosen === undefined || Object.keys(missing).length > 0) return
    const next = doubtOf(key, chosen) ?? ""
    setDoubt(next)
    if (next !== "" && next !== doubt) return refuse({}, `${next} If it is right, press the button again.`)
    setBusy(true)
    try {
      const members = { idempotency_key: attempt.current.id, name: name === "" ? null : name }
      done(await store(key, chosen, credential ? { id: credential.id } : members))
    } catch (error) {
      setBusy(false)
      if (!(error instanceof Refused)) return refuse({}, "This browser could not seal the key. Try another one.")
      const { isOpen: wasOpen } = attempt.current
      if (error.status === 401) return error.stored && wasOpen ? done(error.stored) : closed(error)
      attempt.current = error.isOpen ? { ...attempt.current, isOpen: true } : { id: crypto.randomUUID(), isOpen: false }
      if (error.isOpen) return refuse({}, `${error.message} What is sent again is stored once.`)
      if (error.status === 409 && wasOpen && !credential)
        return refuse(
          {},
          "What you sent before was stored, though no answer came. Look at your keys before you add this one."
        )
      const { elsewhere, here } = refusing(error, form.current)
      refuse(here, elsewhere)
    }
  }

  const mend = (/** @type {any} */ { target }) => {
    if (target.name === "key") setKey(target.value)
    if (target.name === "provider") choose(slugOf(providers, target.value))
    setIssues(({ [target.name]: _, ...others }) => others)
    setFailure("")
  }
  const readFile = async (/** @type {any} */ { target }) => {
    const [file] = target.files
    if (file !== undefined && file.size <= 100_000) setKey((await file.text()).trim())
    target.value = ""
  }

  const shape = chosen && shapeOf(chosen)
  const doubtful = key !== "" && chosen && /^.{8}/.test(key) ? doubtOf(key, chosen) : undefined
  const label = previewOf(key)
  return html`
    <form ref=${form} onSubmit=${submit} onInput=${mend} novalidate autocomplete="off">
      ${
        provider === null
          ? html`<${Field}
                id="provider"
                label="Provider"
                error=${issues["provider"]}
                hint=${chosen ? undefined : "Type a part of its name, or choose one of the list."}
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
      ${shape && html`<p><label for="file">Or take it from a file</label><input id="file" type="file" onChange=${readFile} /></p>`}
      ${
        credential === undefined &&
        html`<${Field}
          id="name"
          label="Name"
          error=${issues["name"]}
          hint="Optional: how you tell this key from others."
          maxlength="255"
        />`
      }
      ${credential && html`<${AfterLife} of=${credential.provider} />`}
      <div role="alert">${failure && html`<small class="error">${failure}</small>`}</div>
      <div class="row">
        <button class="primary" aria-disabled=${String(busy)}>
          ${busy ? "Sending…" : credential ? "Replace key" : "Add key"}
        </button>
        ${cancel && html`<button type="button" onClick=${cancel}>Cancel</button>`}
        <small role="status">${slow && "Still waiting for an answer."}</small>
      </div>
    </form>
  `
}
