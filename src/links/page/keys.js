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

/** Keys by provider, each in the order of trial. @param {Key[]} keys @returns {[string, Key[]][]} */
const byProvider = (keys) =>
  [...new Set(keys.map(({ provider }) => providerName(provider)))]
    .sort()
    .map((name) => [name, inOrder(keys.filter(({ provider }) => providerName(provider) === name))])

/** When a key was used last. @param {import("./api.js").Status} status */
const usesOf = ({ last_failed_at, last_succeeded_at }) => html`
  ${last_succeeded_at === null && last_failed_at === null && "Not used yet"}
  ${last_succeeded_at && html`Last success: <${Ago} at=${last_succeeded_at} />. `}
  ${last_failed_at && html`Last failure: <${Ago} at=${last_failed_at} />.`}
`

/** All keys of the workspace. @returns {Promise<Key[]>} */
const readAll = async () => {
  /** @type {Key[]} */
  const keys = []
  for (;;) {
    const page = await ask("GET", `/byok?include=status&limit=100&offset=${keys.length}`)
    keys.push(...page)
    if (page.length < 100) return keys
  }
}

const matches =
  (/** @type {string} */ search) =>
  (/** @type {Key} */ { label, name, provider }) => {
    const wanted = search.trim().toLowerCase()
    return (
      [name ?? "", provider, providerName(provider)].some((text) => text.toLowerCase().includes(wanted)) ||
      label.toLowerCase().endsWith(wanted)
    )
  }

/** How many keys are shown at a time. */
const most = 100

/** What this entry of the browser's history shows. @returns {{ name: string, id: string }} */
const viewNow = () => history.state?.view ?? { name: "list", id: "" }

/**
 * The keys of a workspace: a list, and a page for each.
 * @param {{ about: import("./api.js").About, closed: (error: Error) => void }} props
 */
export const Keys = ({ about, closed }) => {
  const [keys, setKeys] = useState(/** @type {Key[] | null} */ (null))
  const [view, setView] = useState(viewNow)
  const [search, setSearch] = useState("")
  const underWay = useRef(false)
  const manages = about.purpose === "manage"

  /** Acts, one thing at a time, reads the keys again, and says what became of it. @param {() => Promise<unknown>} act @param {any} [done] */
  const acting = async (act, done = "") => {
    if (underWay.current) return false
    underWay.current = true
    say("")
    const refused = await act()
      .then(() => null)
      .catch((error) => error)
    // What is shown may be out of date, which may be why an act was refused.
    const unread = refused?.status === 0 ? null : await readAll().then(setKeys, (error) => error)
    underWay.current = false
    if (unread && (keys === null || unread.status === 401)) closed(unread)
    else
      say(refused ? refused.message : unread ? html`${done} The keys could not be read again: reload this page.` : done)
    return !refused
  }
  const read = (/** @type {any} */ done) => void acting(async () => {}, done)
  useEffect(() => read(""), [])
  useEffect(() => {
    const back = () => {
      say("")
      setView(viewNow())
    }
    addEventListener("popstate", back)
    return () => removeEventListener("popstate", back)
  }, [])

  const found = (keys ?? []).filter(matches(search)).slice(0, most)
  const show = (/** @type {string} */ name, id = "") => {
    say("")
    history.pushState({ link, view: { name, id } }, "")
    setView({ name, id })
  }
  const shown = keys?.find(({ id }) => id === view.id)

  /** Leaves a form for the view that it was opened from, so that Back does not lead into it again. */
  const leave = (/** @type {string} */ done) => {
    if (done) addEventListener("popstate", () => read(done), { once: true })
    history.back()
  }
  if (view.name === "add" || (view.name === "replace" && shown)) {
    const done = (/** @type {import("./api.js").Stored} */ { label }) => {
      if (!shown) setSearch("")
      leave(`The key ${label} was ${shown ? "stored in place of the old one" : "added"}.`)
    }
    return html`<main key=${view.name}>
      <${Heading}>${shown ? html`Replace the key of ${nameOf(shown)}` : "Add a key"}<//>
      <${KeyForm}
        ...${{ provider: shown?.provider ?? null, providers: about.providers, credential: shown, done, closed, cancel: () => leave("") }}
      />
    </main>`
  }
  if (view.name === "settings" && shown) {
    const save = async (/** @type {object} */ changes) => {
      await ask("PATCH", `/byok/${shown.id}`, changes).catch((error) => {
        if (error.status === 401) closed(error)
        throw error
      })
      leave("The settings were changed.")
    }
    return html`<main key="settings"><${SettingsForm} of=${shown} save=${save} cancel=${() => leave("")} /></main>`
  }
  if (view.name === "key" && shown) {
    return html`<main key="key">
      <button onClick=${() => show("list")}>All keys</button>
      <${KeyPage} key=${shown.id} shown=${shown} all=${keys} manages=${manages} acting=${acting} show=${show} />
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
    ${keys && keys.length > 0 && found.length === 0 && html`<p>No key matches.</p>`}
    ${byProvider(found).map(
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
    ${found.length === most && html`<p>Only ${most} keys are shown: search for the others.</p>`}
  </main>`
}
