// @ts-check
import { ask, open, Refused } from "./api.js"
import { Heading, KeyForm, Name, Said, Time } from "./form.js"
import { Keys } from "./keys.js"
import { html, render, useEffect, useState } from "./preact.js"
import { providerName } from "./providers.js"
import { tokens } from "./start.js"

const Notice = (/** @type {{ title: string, children?: any }} */ { children, title }) =>
  html`<main><${Heading}>${title}<//>${children}</main>`

const Back = (/** @type {{ to: string | null }} */ { to }) =>
  to && html`<p><a href=${to} rel="noreferrer">Back to ${new URL(to).host}</a></p>`

/** @param {{ about: import("./api.js").About, closed: (error: Refused) => void }} props */
const OneKey = ({ about, closed }) => {
  const { account_name, credential_id, provider, purpose, workspace_name } = about
  const [credential, setCredential] = useState(/** @type {import("./api.js").Credential | undefined} */ (undefined))
  const [stored, setStored] = useState(/** @type {import("./api.js").Stored | undefined} */ (undefined))
  useEffect(() => {
    if (credential_id !== null) ask("GET", `/byok/${credential_id}`).then(setCredential, closed)
  }, [])
  if (stored) {
    return html`<${Notice} title=${purpose === "connect" ? "The key was added" : "The key was replaced"}>
      <p class="notice"><code>${stored.label}</code> for ${providerName(stored.provider)} is stored.</p>
      <p>You can close this page: the link has served its purpose.</p>
      <${Back} to=${about.return_url} />
    <//>`
  }
  const isReady = purpose === "connect" || credential !== undefined
  return html`<main>
    <${Heading}>${purpose === "connect" ? "Add your API key" : "Replace your API key"}<//>
    <p>
      ${purpose === "connect" ? "It will be used on behalf of" : html`The new key takes the place of <code>${credential?.label}</code> for`}${" "}
      <strong><${Name} of=${account_name} /></strong>, workspace <${Name} of=${workspace_name} />.
    </p>
    ${
      isReady &&
      html`<${KeyForm}
        provider=${credential?.provider ?? provider}
        providers=${about.providers}
        credential=${credential}
        done=${setStored}
        closed=${closed}
      />`
    }
  </main>`
}

const App = () => {
  const [about, setAbout] = useState(/** @type {import("./api.js").About | null} */ (null))
  const [error, closed] = useState(/** @type {Error | null} */ (null))
  const start = () => void open().then(setAbout, closed)
  useEffect(() => {
    if (isSecureContext && tokens.length > 0) start()
  }, [])
  if (!isSecureContext) {
    return html`<${Notice} title="Open this page over HTTPS">
      <p>It takes no key over plain HTTP: a key can only be sealed, and kept from others on the network, over HTTPS.</p>
    <//>`
  }
  if (tokens.length === 0) {
    return html`<${Notice} title="Open your link again">
      <p>This tab has no link. If yours does not work any more, ask for a new one.</p>
    <//>`
  }
  if (error instanceof Refused && error.status === 401) {
    const { stored } = error
    return html`<${Notice} title="This link cannot be used">
      <p>${error.message}</p>
      ${stored && html`<p>It has stored <code>${stored.label}</code> for ${providerName(stored.provider)}.</p>`}
    <//>`
  }
  if (error) {
    const again = () => {
      closed(null)
      start()
    }
    return html`<${Notice} title="Something went wrong">
      <p>${error.message}</p>
      <button onClick=${again}>Try again</button>
    <//>`
  }
  if (about === null) return html`<main><p role="status">Loading…</p></main>`
  const isList = about.purpose === "manage" || about.purpose === "view"
  return html`
    <header>
      <p>
        <strong><${Name} of=${about.account_name} /></strong>, workspace <${Name} of=${about.workspace_name} />
      </p>
      ${isList && html`<${Back} to=${about.return_url} />`}
    </header>
    <${isList ? Keys : OneKey} about=${about} closed=${closed} />
    <footer>This link ends${" "}<${Time} at=${about.expires_at} />.</footer>
    <${Said} />
  `
}

document.body.replaceChildren()
render(html`<${App} />`, document.body)
