// @ts-check
import { ask } from "./api.js"
import { KeyForm } from "./form.js"
import { inOrder, KeyPage, nameOf } from "./key.js"
import { Ago, Field, Heading, say } from "./parts.js"
import { html, useEffect, useRef, useState } from "./preact.js"
import { providerName } from "./providers.js"
import { SettingsForm } from "./settings.js"
import { link } from "./start.js"
import { State } from "./words.js"

/** @typedef {import("./key.js").Key} Key */

/**
 * Groups keys by the name of their provider, each group in the order in which routers try them.
 * @param {Key[]} keys @returns {[string, Key[]][]}
 */
const byProvider = (keys) =>
  [...new Set(keys.map(({ provider }) => providerName(provider)))]
    .sort()
    .map((name) => [name, inOrder(keys.filter(({ provider }) => providerName(provider) === name))])

/** Shows when a key last succeeded and failed. @param {import("./api.js").Status} status */
const usesOf = ({ last_failed_at, last_succeeded_at }) => html`
  ${last_succeeded_at === null && last_failed_at === null && "Not used yet"}
  ${last_succeeded_at && html`Last success: <${Ago} at=${last_succeeded_at} />. `}
  ${last_failed_at && html`Last failure: <${Ago} at=${last_failed_at} />.`}
`

/** Reads all keys of the workspace, page by page. @returns {Promise<Key[]>} */
const readAll = async () => {
  /** @type {Key[]} */
  const keys = []
  for (;;) {
    const page = await ask("GET", `/byok?include=status&limit=100&offset=${keys.length}`)
    keys.push(...page)
    if (page.length < 100) return keys
  }
}

/** Whether the search is part of a key's name or provider, or the end of its label. */
const matches =
  (/** @type {string} */ search) =>
  (/** @type {Key} */ { label, name, provider }) => {
    const query = search.trim().toLowerCase()
    return (
      [name ?? "", provider, providerName(provider)].some((text) => text.toLowerCase().includes(query)) ||
      label.toLowerCase().endsWith(query)
    )
  }

/** Maximum keys shown at a time. */
const maxShown = 100

/** Reads the view from the current entry of the browser's history. @returns {{ name: string, id: string }} */
const viewNow = () => history.state?.view ?? { name: "list", id: "" }

/**
 * Shows the keys of a workspace: a list, and a page for each key. Calls `onClosed` when the link cannot be used any
 * more, or when the first reading of the keys fails.
 * @param {{ about: import("./api.js").About, onClosed: (error: Error) => void }} props
 */
export const Keys = ({ about, onClosed }) => {
  const [keys, setKeys] = useState(/** @type {Key[] | null} */ (null))
  const [view, setView] = useState(viewNow)
  const [search, setSearch] = useState("")
  const isActing = useRef(false)
  const manages = about.purpose === "manage"

  /**
   * Runs `act` unless another act runs, then reads the keys again. Says `message`, or why the act failed. Returns
   * whether it succeeded.
   * @param {() => Promise<unknown>} act @param {any} [message]
   */
  const perform = async (act, message = "") => {
    if (isActing.current) return false
    isActing.current = true
    say("")
    const refusal = await act()
      .then(() => null)
      .catch((error) => error)
    // Reads after a refusal too, because the keys on the page may be out of date, but not if no answer came (status 0).
    const readFailure = refusal?.status === 0 ? null : await readAll().then(setKeys, (error) => error)
    isActing.current = false
    if (readFailure && (keys === null || readFailure.status === 401)) onClosed(readFailure)
    else
      say(
        refusal
          ? refusal.message
          : readFailure
            ? html`${message} The list of keys could not be updated: reload this page.`
            : message
      )
    return !refusal
  }
  const readAgain = (/** @type {any} */ message) => void perform(async () => {}, message)
  useEffect(() => readAgain(""), [])
  useEffect(() => {
    const showCurrentView = () => {
      say("")
      setView(viewNow())
    }
    addEventListener("popstate", showCurrentView)
    return () => removeEventListener("popstate", showCurrentView)
  }, [])

  const matching = (keys ?? []).filter(matches(search))
  const listed = matching.slice(0, maxShown)
  const show = (/** @type {string} */ name, id = "") => {
    say("")
    history.pushState({ link, view: { name, id } }, "")
    setView({ name, id })
  }
  const shown = keys?.find(({ id }) => id === view.id)

  /**
   * Leaves a form by going back in the history, so that the Back button does not return to it. Then reads the keys
   * again and says `message`, unless it is empty.
   */
  const leave = (/** @type {string} */ message) => {
    if (message) addEventListener("popstate", () => readAgain(message), { once: true })
    history.back()
  }
  if (view.name === "add" || (view.name === "replace" && shown)) {
    const onStored = (/** @type {import("./api.js").Stored} */ { label }) => {
      if (!shown) setSearch("")
      leave(`The key ${label} was ${shown ? "stored in place of the old one" : "added"}.`)
    }
    return html`<main key=${view.name}>
      <${Heading}>${shown ? html`Replace the key of ${nameOf(shown)}` : "Add a key"}<//>
      <${KeyForm}
        ...${{ provider: shown?.provider ?? null, providers: about.providers, credential: shown, onStored, onClosed, cancel: () => leave("") }}
      />
    </main>`
  }
  if (view.name === "settings" && shown) {
    const save = async (/** @type {object} */ changes) => {
      await ask("PATCH", `/byok/${shown.id}`, changes).catch((error) => {
        if (error.status === 401) onClosed(error)
        throw error
      })
      leave("The settings were changed.")
    }
    return html`<main key="settings"><${SettingsForm} of=${shown} save=${save} cancel=${() => leave("")} /></main>`
  }
  if (view.name === "key" && shown) {
    return html`<main key="key">
      <button onClick=${() => show("list")}>All keys</button>
      <${KeyPage} key=${shown.id} shown=${shown} all=${keys} manages=${manages} perform=${perform} show=${show} />
    </main>`
  }
  return html`<main key="list">
    <div class="row">
      <${Heading}>Keys<//>
      ${manages && html`<button class="primary" onClick=${() => show("add")}>Add key</button>`}
    </div>
    ${
      keys?.[0] &&
      html`<${Field}
        id="search"
        label="Search"
        type="search"
        value=${search}
        placeholder="Name, provider, or the end of a label"
        onInput=${(/** @type {any} */ { target }) => setSearch(target.value)}
      />`
    }
    ${keys === null && html`<p role="status">Loading…</p>`} ${keys?.length === 0 && html`<p>There are no keys yet.</p>`}
    ${keys && keys.length > 0 && listed.length === 0 && html`<p>No key matches.</p>`}
    ${byProvider(listed).map(
      ([name, keys]) =>
        html`<h2>${name}</h2>
          <ol>
            ${keys.map(
              (key) =>
                html`<li key=${key.id}>
                  <article>
                    <div class="row">
                      <button onClick=${() => show("key", key.id)}>${nameOf(key)}</button>
                      <${State} of=${key.status?.state} />
                    </div>
                    <small
                      >${key.name !== null && html`<code>${key.label}</code> · `}${key.is_fallback && "after all others · "}${
                        key.status && usesOf(key.status)
                      }</small
                    >
                  </article>
                </li>`
            )}
          </ol>`
    )}
    ${matching.length > maxShown && html`<p>Only ${maxShown} keys are shown: search for the others.</p>`}
  </main>`
}
