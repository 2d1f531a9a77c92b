// @ts-check
import { ask } from "./api.js"
import { Read } from "./form.js"
import { Ago, Field, Heading, Name, Rows } from "./parts.js"
import { html, useEffect, useState } from "./preact.js"
import { providerName, TokenValidity } from "./providers.js"
import { Settings } from "./settings.js"
import { causeOf, EventText, inWords, State, states } from "./words.js"

/** @typedef {import("./api.js").Credential & { status?: import("./api.js").Status }} Key */

/** The name of a key; its label if it has none. */
export const nameOf = (/** @type {Pick<Key, "label" | "name">} */ { label, name }) =>
  html`<${Name} of=${name ?? label} />`

/** Hides updates of only the key: a `credential.rotate` event of the same update says as much. */
const isShown = (/** @type {any} */ { action, fields }) => action !== "credential.update" || String(fields) !== "key"

/** The word that an owner types to delete a key: its label, or the provider if the label is hard to type. */
const confirmationOf = (/** @type {Key} */ { label, provider }) => (/^[\w.-]+$/.test(label) ? label : provider)

/** Sorts the keys of one provider into the order in which routers try them. @param {Key[]} keys */
export const inOrder = (keys) =>
  [...keys].sort(
    (one, other) => Number(one.is_fallback) - Number(other.is_fallback) || one.sort_order - other.sort_order
  )

/**
 * The page of one key. `perform` runs an action, reads all keys again and says `message`; `show` opens another view.
 * @param {{ shown: Key, all: Key[], manages: boolean,
 *   perform: (act: () => Promise<unknown>, message?: any) => Promise<boolean>,
 *   show: (name: string, id?: string) => void }} props
 */
export const KeyPage = ({ all, manages, perform, show, shown }) => {
  const { disabled, id, label, provider, status } = shown
  const [editing, edit] = useState("")
  const [isMistyped, setMistyped] = useState(false)
  const [plan, setPlan] = useState(/** @type {any} */ (null))
  useEffect(() => /** @type {HTMLInputElement | null} */ (document.getElementById(editing))?.select(), [editing])

  const siblings = inOrder(all.filter((key) => key.provider === provider))
  /** The keys among which this one can move. */
  const order = siblings.filter((key) => key.is_fallback === shown.is_fallback)
  const index = order.findIndex((key) => key.id === id)
  const move = (/** @type {number} */ by, /** @type {string} */ words) => {
    const other = order[index + by]
    const swap = async () => {
      const ids = siblings.map((key) => (key.id === id ? other?.id : key.id === other?.id ? id : key.id))
      await ask("PUT", "/byok/order", { provider, ids })
    }
    const message = html`${nameOf(shown)} is now number ${index + by + 1} of ${providerName(provider)}.`
    const onClick = () => other && perform(swap, message)
    return html`<button aria-disabled=${String(!other)} onClick=${onClick}>${words}</button>`
  }
  const change = (/** @type {object} */ changes, /** @type {any} */ message) =>
    perform(() => ask("PATCH", `/byok/${id}`, changes), message)
  const toggle = (/** @type {string} */ name, /** @type {string} */ words, kind = "") =>
    html`<button
      class=${kind}
      aria-expanded=${String(editing === name)}
      onClick=${() => edit(editing === name ? "" : name)}
    >
      ${words}
    </button>`
  const submittedText = (/** @type {any} */ event) => {
    event.preventDefault()
    return event.target.querySelector("input").value.trim()
  }
  const rename = async (/** @type {Event} */ event) => {
    if (!(await change({ name: submittedText(event) || null }, "The name was changed."))) return
    edit("")
    document.querySelector("h1")?.focus()
  }
  const word = confirmationOf(shown)
  const remove = (/** @type {Event} */ event) => {
    if (submittedText(event) !== word) return setMistyped(true)
    void perform(async () => {
      await ask("DELETE", `/byok/${id}`)
      show("list")
    }, `The key ${label} was deleted.`)
  }
  const explain = (/** @type {Event} */ event) => {
    const model = submittedText(event)
    void perform(async () => setPlan(await ask("POST", "/byok/plan", { model, targets: [{ provider }] })))
  }
  const verdict = plan?.providers[0]?.credentials.find((/** @type {any} */ one) => one.credential_id === id)
  const steps = (plan?.steps ?? []).map((/** @type {any} */ step) =>
    step.kind === "own" ? nameOf(step) : "shared capacity"
  )
  const { last_failed_at, last_failure, last_succeeded_at, parked = [], state = "" } = status ?? {}
  const { last_refused_at, last_refused_code, last_refused_status } = status ?? {}
  const reasons = [...new Set(parked.map(({ cause }) => causeOf(cause)))].join(", and ")
  const nextTry = parked.map(({ until }) => until).sort()[0]

  return html`
    <div class="row">
      <${Heading}>${nameOf(shown)}<//>
      <${State} of=${state} />
    </div>
    <p>
      ${states[state]?.[1]} ${state !== "disabled" && reasons && `${" "}The reason: ${reasons}.`}
      ${state === "parked" && nextTry && html`${" "}It is tried again <${Ago} at=${nextTry} onPassed=${() => perform(async () => {})} />.`}
    </p>
    ${
      manages &&
      html`<div class="row">
          ${
            state !== "unreadable" &&
            html`<button class="primary" onClick=${() => show("replace", id)}>Replace key</button>
              <button
                onClick=${() => change({ disabled: !disabled }, `The key is switched ${disabled ? "on" : "off"}.`)}
              >
                ${disabled ? "Switch on" : "Switch off"}
              </button>
              <button onClick=${() => show("settings", id)}>Settings</button>`
          }
          ${toggle("rename", "Rename")} ${order.length > 1 && [move(-1, "Move up"), move(1, "Move down")]}
          ${toggle("confirm", "Delete", "danger")}
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
              error=${isMistyped ? `That is not ${word}. Nothing was deleted.` : undefined}
              onInput=${() => setMistyped(false)}
              autocomplete="off"
            />
            <${TokenValidity} of=${provider} />
            <button class="danger">Delete for good</button>
          </form>`
        }`
    }
    <table>
      <${Rows}
        of=${{
          Provider: providerName(provider),
          Label: html`<code>${label}</code>`,
          ...(order.length > 1 && {
            Place: `${index + 1} of ${order.length}${shown.is_fallback ? ", after all others" : ""}`
          }),
          Added: html`<${Ago} at=${shown.created_at} />`,
          "Last success": html`<${Ago} at=${last_succeeded_at} />`,
          "Last failure": html`<${Ago} at=${last_failed_at} />${last_failure && `: ${causeOf(last_failure)}`}`,
          ...(last_refused_at && {
            "Last refused request": html`<${Ago} at=${last_refused_at} />: ${last_refused_status} ${last_refused_code}`
          })
        }}
      />
      <${Settings} of=${shown} />
    </table>
    <h2>Is it used for a model?</h2>
    <form onSubmit=${explain}>
      <${Field} id="model" label="Model" maxlength="255" placeholder="vendor/model" autocomplete="off" required />
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
            ${verdict.excluded.map((/** @type {any} */ { hint, message }) => html`<li>${inWords(message)}${hint && html`; <${Name} of=${hint} />`}</li>`)}
          </ul>
          <p>
            In order:${" "}
            ${steps.length === 0 ? "nothing" : steps.map((/** @type {any} */ step, /** @type {number} */ n) => html`${n > 0 && ", then "}${step}`)}.
          </p>`
      }
    </div>
    <h2>Events</h2>
    <${Read} path=${`/byok/events?credential_id=${id}&limit=20`} version=${shown}
      >${(/** @type {any[]} */ events) =>
        html`<table>
          ${events.filter(isShown).map(
            (event) =>
              html`<tr key=${event.id}>
                <td><${Ago} at=${event.at} /></td>
                <td><${EventText} of=${event} /></td>
              </tr>`
          )}
        </table>`}<//
    >
  `
}
