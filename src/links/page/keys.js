// @ts-check
import { ask, Refused } from "./api.js"
import { Ago, Field, Heading, KeyForm, Name, say, Time, useSlow } from "./form.js"
import { html, useEffect, useRef, useState } from "./preact.js"
import { AfterLife, providerName } from "./providers.js"
import { Settings, SettingsForm } from "./settings.js"
import { link } from "./start.js"

/** @typedef {import("./api.js").Credential & { status?: import("./api.js").Status }} Key */

/** Of each state: its word, and what it means to the owner. @type {Record<string, [string, string]>} */
const states = {
  active: ["Active", "This key is used."],
  failing: ["Failing", "This key is used, but the provider refused it when it was last tried."],
  parked: ["Parked", "The provider refused this key, so it is not used now."],
  disabled: ["Off", "This key is switched off and is not used."],
  leaked: ["Leaked", "This key is known to have leaked. It is not used until it is replaced."],
  unreadable: [
    "Unreadable",
    "This key cannot be opened any more, so it can only be renamed or deleted. Delete it and add it again, or ask whoever sent you the link."
  ]
}

/** @type {Record<string, string>} */
const causes = {
  rejected: "the provider rejected it",
  forbidden: "the provider forbade it",
  quota_exhausted: "its quota was used up",
  rate_limited: "it was limited in rate",
  upstream_failed: "the provider failed",
  leaked: "it leaked"
}

/** @type {Record<string, string>} */
const acts = {
  "credential.create": "Added",
  "credential.update": "Changed",
  "credential.update name": "Renamed",
  "credential.update disabled": "Switched on or off",
  "credential.rotate": "Key replaced",
  "credential.reorder": "Order changed",
  "credential.park": "Marked as leaked",
  "credential.unpark": "No longer marked as leaked",
  "credential.rejected": "Refused by the provider",
  "credential.recovered": "Accepted by the provider again"
}

/** @type {Record<string, string>} */
const actors = { link: "with a link", cli: "by an operator", service: "by byok" }

const actorOf = (/** @type {{ kind: string, name?: string | null }} */ { kind, name }) =>
  kind !== "api_key"
    ? (actors[kind] ?? "by the gateway")
    : html`by the API key ${name ? html`<${Name} of=${name} />` : "that is gone"}`

const nameOf = (/** @type {Pick<Key, "label" | "name">} */ { label, name }) => html`<${Name} of=${name ?? label} />`

/** What an owner types to delete a key: its label, unless that is all brackets and stars. */
const wordFor = (/** @type {Key} */ { label, provider }) => (/^[\w.-]+$/.test(label) ? label : provider)

/** By what, in the order of what. @template A @param {A[]} all @param {(one: A) => string} by @returns {[string, A[]][]} */
const grouped = (all, by) => {
  /** @type {Map<string, A[]>} */
  const groups = new Map()
  for (const one of all) groups.set(by(one), [...(groups.get(by(one)) ?? []), one])
  return [...groups].sort(([one], [other]) => (one < other ? -1 : 1))
}

const State = (/** @type {{ of: string | undefined }} */ { of }) =>
  of === undefined ? null : html`<span class=${`state ${of}`}>${states[of]?.[0] ?? of}</span>`

/** When a key was used last. @param {import("./api.js").Status} status */
const usesOf = ({ last_failed_at, last_succeeded_at }) => html`
  ${last_succeeded_at === null && last_failed_at === null && "Not used yet"}
  ${last_succeeded_at && html`Last success: <${Ago} at=${last_succeeded_at} />. `}
  ${last_failed_at && html`Last failure: <${Ago} at=${last_failed_at} />.`}
`

/** Members as people know them, in the events that changed them. @type {Record<string, string>} */
const members = {
  name: "name",
  disabled: "whether it is on",
  key: "key",
  is_fallback: "whether it comes last",
  is_required: "use of shared capacity",
  is_byok_only: "use of shared capacity for its models",
  allowed_models: "models",
  allowed_user_ids: "users",
  allowed_api_key_hashes: "API keys",
  declared_region: "region",
  declared_zdr: "zero data retention"
}

/** Those of one provider, in the order of trial. @param {Key[]} keys */
const inOrder = (keys) =>
  [...keys].sort(
    (one, other) => Number(one.is_fallback) - Number(other.is_fallback) || one.sort_order - other.sort_order
  )

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
 * @param {{ about: import("./api.js").About, closed: (error: Refused) => void }} props
 */
export const Keys = ({ about, closed }) => {
  const [keys, setKeys] = useState(/** @type {Key[] | null} */ (null))
  const [view, setView] = useState(viewNow)
  const [search, setSearch] = useState("")
  const [busy, setBusy] = useState(false)
  const [failure, setFailure] = useState("")
  const underWay = useRef(false)
  const slow = useSlow(busy || (keys === null && failure === ""))
  const manages = about.purpose === "manage"

  /** Acts, one thing at a time, reads the keys again, and says what became of it. @param {() => Promise<unknown>} act @param {any} [done] */
  const acting = async (act, done = "") => {
    if (underWay.current) return false
    underWay.current = true
    setBusy(true)
    say("")
    setFailure("")
    let acted = false
    try {
      await act()
      acted = true
      setKeys(await readAll())
      say(done)
    } catch (error) {
      if (error instanceof Refused && error.status === 401) closed(error)
      else if (keys === null) setFailure(error instanceof Error ? error.message : String(error))
      else
        say(
          acted
            ? html`${done} The keys could not be read again: reload this page.`
            : String(/** @type {Error} */ (error).message)
        )
      // What is shown may be out of date, which is why it was refused.
      if (!acted && keys !== null) await readAll().then(setKeys, () => {})
    } finally {
      underWay.current = false
      setBusy(false)
    }
    return acted
  }
  const read = () => void acting(async () => {})
  useEffect(read, [])
  useEffect(() => {
    const back = () => {
      say("")
      setView(viewNow())
    }
    addEventListener("popstate", back)
    return () => removeEventListener("popstate", back)
  }, [])
  useEffect(() => {
    if (slow) say("Still waiting for an answer.")
  }, [slow])

  const found = (keys ?? []).filter(matches(search)).slice(0, most)
  const show = (/** @type {string} */ name, id = "") => {
    say("")
    history.pushState({ link, view: { name, id } }, "")
    setView({ name, id })
  }
  const shown = keys?.find(({ id }) => id === view.id)
  if (view.name === "add" || (view.name === "replace" && shown)) {
    const credential = view.name === "add" ? undefined : shown
    const done = (/** @type {import("./api.js").Stored} */ { label }) => {
      show(credential ? "key" : "list", credential?.id)
      if (!credential) setSearch("")
      void acting(async () => {}, `The key ${label} was ${credential ? "stored in place of the old one" : "added"}.`)
    }
    return html`<main key=${view.name}>
      <${Heading}>${credential ? html`Replace the key of ${nameOf(credential)}` : "Add a key"}<//>
      <${KeyForm}
        provider=${credential?.provider ?? null}
        providers=${about.providers}
        credential=${credential}
        done=${done}
        closed=${closed}
        cancel=${() => show(credential ? "key" : "list", credential?.id)}
      />
    </main>`
  }
  if (view.name === "settings" && shown) {
    const save = async (/** @type {object} */ changes) => {
      await ask("PATCH", `/byok/${shown.id}`, changes)
      show("key", shown.id)
      void acting(async () => {}, "The settings were changed.")
    }
    return html`<main key="settings">
      <${SettingsForm} of=${shown} save=${save} cancel=${() => show("key", shown.id)} />
    </main>`
  }
  if (view.name === "key" && shown) {
    return html`<main key="key">
      <button onClick=${() => show("list")}>All keys</button>
      <${Key} key=${shown.id} shown=${shown} all=${keys} manages=${manages} acting=${acting} show=${show} />
    </main>`
  }
  return html`<main key="list">
    <div class="row">
      <${Heading}>Keys<//>
      ${manages && html`<button class="primary" onClick=${() => show("add")}>Add key</button>`}
    </div>
    <${Field}
      id="search"
      label="Search"
      type="search"
      value=${search}
      placeholder="Name, provider, or the end of a label"
      onInput=${(/** @type {any} */ { target }) => setSearch(target.value)}
    />
    ${keys === null && failure === "" && html`<p>Loading…</p>`}
    <div role="alert">
      ${
        failure &&
        html`<p class="error">${failure}</p>
          <button onClick=${read}>Try again</button>`
      }
    </div>
    ${keys?.length === 0 && html`<p>There are no keys yet.</p>`}
    ${keys && keys.length > 0 && found.length === 0 && html`<p>No key matches.</p>`}
    ${grouped(found, ({ provider }) => provider).map(
      ([provider, keys]) =>
        html`<h2>${providerName(provider)}</h2>
          <ol>
            ${inOrder(keys).map(
              (key) =>
                html`<li key=${key.id}>
                  <article class="row">
                    <button onClick=${() => show("key", key.id)}>${nameOf(key)}</button>
                    ${key.name !== null && html`<code>${key.label}</code>`}
                    ${key.is_fallback && html`<small>after all others</small>`}
                    ${key.status && html`<small>${usesOf(key.status)}</small>`}
                    <${State} of=${key.status?.state} />
                  </article>
                </li>`
            )}
          </ol>`
    )}
    ${found.length === most && html`<p>Only ${most} keys are shown: search for the others.</p>`}
  </main>`
}

/** @param {{ shown: Key, all: Key[], manages: boolean, acting: (act: () => Promise<unknown>, done?: any) => Promise<boolean>,
 *   show: (name: string, id?: string) => void }} props */
const Key = ({ acting, all, manages, show, shown }) => {
  const { disabled, id, label, provider, status } = shown
  const [editing, edit] = useState("")
  const [wrong, setWrong] = useState(false)
  const [events, setEvents] = useState(/** @type {any[]} */ ([]))
  const [plan, setPlan] = useState(/** @type {any} */ (null))
  useEffect(() => document.getElementById(editing)?.focus(), [editing])
  useEffect(() => void ask("GET", `/byok/events?credential_id=${id}&limit=20`).then(setEvents, () => {}), [shown])

  const order = inOrder(all.filter((key) => key.provider === provider && key.is_fallback === shown.is_fallback))
  const place = order.findIndex((key) => key.id === id)
  const move = (/** @type {number} */ by) =>
    acting(
      async () => {
        const ids = inOrder(all.filter((key) => key.provider === provider)).map((key) => key.id)
        const [from, to] = [ids.indexOf(id), ids.indexOf(order[place + by]?.id ?? id)]
        ids.splice(to, 0, ...ids.splice(from, 1))
        await ask("PUT", "/byok/order", { provider, ids })
      },
      html`${nameOf(shown)} is now number ${place + by + 1} of ${providerName(provider)}.`
    )
  const change = (/** @type {object} */ changes, /** @type {any} */ done) =>
    acting(() => ask("PATCH", `/byok/${id}`, changes), done)
  const given = (/** @type {Event} */ event, /** @type {string} */ name) => {
    event.preventDefault()
    return String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get(name)).trim()
  }
  const rename = async (/** @type {Event} */ event) => {
    const name = given(event, "rename")
    if (await change({ name: name === "" ? null : name }, "The name was changed.")) edit("")
  }
  const word = wordFor(shown)
  const remove = (/** @type {Event} */ event) => {
    if (given(event, "confirm") !== word) return setWrong(true)
    void acting(async () => {
      await ask("DELETE", `/byok/${id}`)
      show("list")
    }, `The key ${label} was deleted.`)
  }
  const explain = (/** @type {Event} */ event) => {
    const model = given(event, "model")
    if (model === "") return
    void acting(async () => setPlan(await ask("POST", "/byok/plan", { model, targets: [{ provider }] })))
  }
  const verdict = plan?.providers[0]?.credentials.find((/** @type {any} */ one) => one.credential_id === id)
  const steps = (plan?.steps ?? []).map((/** @type {any} */ step) =>
    step.kind === "own" ? nameOf(step) : "shared capacity"
  )
  const said = (/** @type {any} */ { action, actor, cause, fields = [], model }) => {
    const whole = acts[`${action} ${fields}`]
    const changed = fields.map((/** @type {string} */ one) => members[one] ?? one).join(", ")
    return html`${whole ?? acts[action] ?? action}${!whole && changed && `: ${changed}`}${
      cause && `: ${causes[cause] ?? cause}`
    }${model && html`, for <${Name} of=${model} />`}${actor.kind !== "service" && html`, ${actorOf(actor)}`}`
  }
  const [, meaning] = states[status?.state ?? ""] ?? []
  const parked = status?.parked ?? []
  const failure = status?.last_failure
  const retry = parked.map(({ until }) => until).sort()[0]

  return html`
    <div class="row">
      <${Heading}>${nameOf(shown)}<//>
      <${State} of=${status?.state} />
    </div>
    <p>
      ${meaning}
      ${status?.state !== "disabled" && parked.length > 0 && `${" "}The reason: ${[...new Set(parked.map(({ cause }) => causes[cause] ?? cause))].join(", and ")}.`}
      ${status?.state === "parked" && retry && html`${" "}It is tried again <${Ago} at=${retry} over=${() => acting(async () => {})} />.`}
    </p>
    ${
      manages &&
      html`<div class="row">
          ${
            status?.state !== "unreadable" &&
            html`<button class="primary" onClick=${() => show("replace", id)}>Replace key</button>
              <button
                onClick=${() => change({ disabled: !disabled }, `The key is switched ${disabled ? "on" : "off"}.`)}
              >
                ${disabled ? "Switch on" : "Switch off"}
              </button>
              <button onClick=${() => show("settings", id)}>Settings</button>`
          }
          <button aria-expanded=${String(editing === "rename")} onClick=${() => edit("rename")}>Rename</button>
          <button disabled=${place <= 0} onClick=${() => move(-1)}>Move up</button>
          <button disabled=${place >= order.length - 1} onClick=${() => move(1)}>Move down</button>
          <button class="danger" aria-expanded=${String(editing === "confirm")} onClick=${() => edit("confirm")}>
            Delete
          </button>
        </div>
        ${
          editing === "rename" &&
          html`<form onSubmit=${rename}>
            <${Field} id="rename" label="New name" maxlength="255" defaultValue=${shown.name ?? ""} />
            <button class="primary">Save</button>
          </form>`
        }
        ${
          editing === "confirm" &&
          html`<form onSubmit=${remove}>
            <${Field}
              id="confirm"
              label=${`Type ${word} to delete this key for good`}
              error=${wrong ? `That is not ${word}. Nothing was deleted.` : undefined}
              onInput=${() => setWrong(false)}
              autocomplete="off"
            />
            <${AfterLife} of=${provider} />
            <button class="danger">Delete for good</button>
          </form>`
        }`
    }
    <table>
      ${Object.entries({
        Provider: providerName(provider),
        Label: html`<code>${label}</code>`,
        Place: `${place + 1} of ${order.length}${shown.is_fallback ? ", after all others" : ""}`,
        Added: html`<${Time} at=${shown.created_at} />`,
        "Last success": status?.last_succeeded_at ? html`<${Ago} at=${status.last_succeeded_at} />` : "never",
        "Last failure": status?.last_failed_at
          ? html`<${Ago} at=${status.last_failed_at} />${failure && `: ${causes[failure] ?? failure}`}`
          : "never"
      }).map(
        ([name, value]) =>
          html`<tr>
            <th scope="row">${name}</th>
            <td>${value}</td>
          </tr>`
      )}
      <${Settings} of=${shown} />
    </table>
    <h2>Why is it not used?</h2>
    <form onSubmit=${explain}>
      <${Field} id="model" label="Model" maxlength="255" placeholder="vendor/model" autocomplete="off" />
      <button>Explain</button>
    </form>
    <div role="status">
      ${
        verdict &&
        html`<p>
            For <strong><${Name} of=${plan.model} /></strong>, this key is${" "}
            <strong>${verdict.position === null ? "not used" : `tried as number ${verdict.position + 1}`}</strong>.
          </p>
          <ul>
            ${verdict.excluded.map((/** @type {any} */ { hint, message }) => html`<li>${message}${hint && html`; <${Name} of=${hint} />`}</li>`)}
          </ul>
          <p>
            In order:${" "}
            ${steps.length === 0 ? "nothing" : steps.map((/** @type {any} */ step, /** @type {number} */ n) => html`${n > 0 && ", then "}${step}`)}.
          </p>`
      }
    </div>
    <h2>Events</h2>
    <table>
      ${events.map(
        (event) =>
          html`<tr key=${event.id}>
            <td><${Ago} at=${event.at} /></td>
            <td>${said(event)}</td>
          </tr>`
      )}
    </table>
  `
}
