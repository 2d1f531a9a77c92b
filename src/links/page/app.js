// @ts-check
import { open, Refused } from "./api.js"
import { KeyForm, Read } from "./form.js"
import { Keys } from "./keys.js"
import { Ago, Heading, Name, Message } from "./parts.js"
import { html, render, useEffect, useState } from "./preact.js"
import { providerName } from "./providers.js"
import { tokens } from "./start.js"

/** @typedef {import("./api.js").Stored} Stored */

const Notice = (/** @type {{ title: string, children?: any }} */ { children, title }) =>
  html`<main key=${title}><${Heading}>${title}<//>${children}</main>`

const Back = (/** @type {{ to: string | null }} */ { to }) =>
  to && html`<p><a href=${to} rel="noreferrer">Back to ${new URL(to).host}</a></p>`

const Key = (/** @type {{ of: Stored }} */ { of }) => html`<code>${of.label}</code> for ${providerName(of.provider)}`

/**
 * The page of a link that adds or replaces one key. Calls `onClosed` when the link cannot be used any more.
 * @param {{ about: import("./api.js").About, onStored: (stored: Stored) => void,
 *   onClosed: (error: Refused) => void }} props
 */
const OneKey = ({ about, onClosed, onStored }) => {
  const { account_name, credential_id, provider, purpose, providers, workspace_name } = about
  const form = (/** @type {import("./api.js").Credential | undefined} */ credential) => html`
    <p>
      ${credential ? html`The new key takes the place of <code>${credential.label}</code> for` : "It will be used on behalf of"}${" "}
      <strong><${Name} of=${account_name} /></strong>, workspace <${Name} of=${workspace_name} />.
    </p>
    <${KeyForm} ...${{ provider: credential?.provider ?? provider, providers, credential, onStored, onClosed }} />
  `
  return html`<main>
    <${Heading}>${purpose === "connect" ? "Add your API key" : "Replace your API key"}<//>
    ${credential_id === null ? form(undefined) : html`<${Read} path=${`/byok/${credential_id}`}>${form}<//>`}
  </main>`
}

const App = () => {
  const [about, setAbout] = useState(/** @type {import("./api.js").About | null} */ (null))
  const [error, setError] = useState(/** @type {Error | null} */ (null))
  const [stored, setStored] = useState(/** @type {Stored | null} */ (null))
  const start = () => void open().then(setAbout, setError)
  useEffect(() => {
    if (isSecureContext && tokens.length > 0) start()
  }, [])
  if (!isSecureContext) {
    return html`<${Notice} title="Open this page over HTTPS">
      <p>
        Over plain HTTP others on the network could read a key, so this page takes none. Ask for a link that begins with
        https.
      </p>
    <//>`
  }
  if (tokens.length === 0) {
    return html`<${Notice} title="Open your link again">
      <p>This tab has no link. If yours does not work any more, ask for a new one.</p>
    <//>`
  }
  if (error instanceof Refused && error.status === 401) {
    return html`<${Notice} title="This link cannot be used">
      <p>${error.message}</p>
      ${error.stored && html`<p>It has stored <${Key} of=${error.stored} />.</p>`}
    <//>`
  }
  if (error) {
    const retry = () => {
      setError(null)
      start()
    }
    return html`<${Notice} title="Something went wrong">
      <p>${error.message}</p>
      <button onClick=${retry}>Try again</button>
    <//>`
  }
  if (about === null) return html`<${Notice} title="Provider keys"><p role="status">Loading…</p><//>`
  if (stored) {
    return html`<${Notice} title=${about.purpose === "connect" ? "The key was added" : "The key was replaced"}>
      <p class="notice"><${Key} of=${stored} /> is stored.</p>
      <p>You can close this page: the link has served its purpose.</p>
      <${Back} to=${about.return_url} />
    <//>`
  }
  const isList = about.purpose === "manage" || about.purpose === "view"
  return html`
    <header>
      <p>
        <strong><${Name} of=${about.account_name} /></strong>, workspace <${Name} of=${about.workspace_name} />
      </p>
      ${isList && html`<${Back} to=${about.return_url} />`}
    </header>
    <${isList ? Keys : OneKey} about=${about} onStored=${setStored} onClosed=${setError} />
    <footer>This link ends${" "}<${Ago} at=${about.expires_at} />.</footer>
  `
}

document.body.replaceChildren()
render(html`<${App} /><${Message} />`, document.body)
