// @ts-check
import { Read, useRefusal } from "./form.js"
import { Field, Heading, Name, Rows } from "./parts.js"
import { html, useState } from "./preact.js"
import { providerName } from "./providers.js"
import { members } from "./words.js"

/** @typedef {import("./api.js").Credential} Credential */
/** @typedef {{ hash: string, name: string }} ApiKey */

/** The name of an API key, or the end of its hash if the key no longer exists. */
const ApiKeyName = (/** @type {{ hash: string, all: ApiKey[] }} */ { all, hash }) => {
  const apiKey = all.find((one) => one.hash === hash)
  return apiKey ? html`<${Name} of=${apiKey.name} />` : `one whose hash ends in ${hash.slice(-4)}`
}

/** The choices for zero data retention: each value and its words. */
const zdr = [
  ["", "As the service has it for the provider"],
  ["true", "Yes: the provider keeps no data from requests"],
  ["false", "No: not used for requests that require it"]
]
const regions = [
  ["", "Not declared"],
  ["global", "Global"],
  ["europe", "Europe"],
  ["us", "United States"]
]

const wordsOf = (/** @type {string[][]} */ choices, /** @type {unknown} */ value) =>
  choices.find(([one]) => one === String(value ?? ""))?.[1]

/** Whether keys of a provider may have a region: for azure, owners declare it; for the others, a key may contain it. */
const takesRegion = (/** @type {string} */ provider) => ["azure", "openai", "fireworks"].includes(provider)

const list = (/** @type {any[] | null} */ all, /** @type {string} */ unrestricted) =>
  all === null ? unrestricted : all.length === 0 ? "None" : html`${all.map((one, n) => html`${n > 0 && ", "}${one}`)}`

/** The restrictions and flags of a key, as rows of a table. @param {{ of: Credential }} props */
export const Settings = ({ of }) => {
  const named = (/** @type {string[] | null} */ texts) => texts && texts.map((text) => html`<${Name} of=${text} />`)
  const { allowed_api_key_hashes: hashes } = of
  const sharedCapacity = [
    of.is_fallback && "Tried after all other keys, and after shared capacity.",
    of.is_byok_only && "Shared capacity is not used for its models.",
    of.is_required && `Shared capacity of ${providerName(of.provider)} is not used for any model.`
  ].filter(Boolean)
  return html`<${Rows}
    of=${{
      Models: list(named(of.allowed_models), "Every model"),
      Users: list(named(of.allowed_user_ids), "Every user"),
      "API keys":
        hashes === null
          ? "Every API key"
          : html`<${Read} path="/api-keys"
              >${(/** @type {ApiKey[]} */ all) =>
                list(
                  hashes.map((hash) => html`<${ApiKeyName} hash=${hash} all=${all} />`),
                  ""
                )}<//
            >`,
      "Shared capacity": sharedCapacity.join(" ") || "Used after this key",
      ...(takesRegion(of.provider) && { Region: wordsOf(regions, of.declared_region) }),
      "Zero data retention": wordsOf(zdr, of.declared_zdr)
    }}
  />`
}

const options = (/** @type {string[][]} */ choices, /** @type {unknown} */ value) =>
  choices.map(
    ([one, words]) => html`<option value=${one} defaultSelected=${one === String(value ?? "")}>${words}</option>`
  )

const distinctLinesOf = (/** @type {FormDataEntryValue | null} */ text) => {
  const lines = String(text ?? "")
    .split("\n")
    .map((line) => line.trim())
  return lines.filter((line, n) => line !== "" && lines.indexOf(line) === n)
}

/** Says why a list of models may not be meant as it is written; undefined if it may. @param {string[] | null} models */
const doubtOf = (models) => {
  const unusual = models?.find((model) => /[*,]/.test(model))
  return (
    unusual &&
    `Models are compared character by character: ${unusual.includes("*") ? "* is no wildcard" : "a comma does not separate them, so write one a line"}.`
  )
}

/** Converts the values of the form to members of a credential. @param {FormData} values */
const settingsIn = (values) => {
  const orNull = (/** @type {string[]} */ all) => (all.length === 0 ? null : all)
  const declared = values.get("declared_zdr")
  return {
    allowed_models: orNull(distinctLinesOf(values.get("allowed_models"))),
    allowed_user_ids: orNull(distinctLinesOf(values.get("allowed_user_ids"))),
    allowed_api_key_hashes: orNull(values.getAll("allowed_api_key_hashes").map(String)),
    is_fallback: values.has("is_fallback"),
    is_byok_only: values.has("is_byok_only"),
    is_required: values.has("is_required"),
    declared_zdr: declared === "" ? null : declared === "true",
    ...(values.has("declared_region") ? { declared_region: values.get("declared_region") || null } : {})
  }
}

/**
 * The form for restrictions and flags. Sends only the members that changed here, so that changes by others stay.
 * @param {{ of: Credential, save: (changes: object) => Promise<void>, cancel: () => void }} props
 */
export const SettingsForm = ({ cancel, of, save }) => {
  const { alert, form, issues, clearIssue, showIssues, showFailure } = useRefusal()
  const [busy, setBusy] = useState(false)
  const [hasConflict, setConflict] = useState(false)
  /** The doubt that the last submission of these models showed. Submitting again, despite the doubt, saves them. */
  const [shownDoubt, setShownDoubt] = useState("")
  const currentSettings = () => settingsIn(new FormData(form.current ?? undefined))
  /** The settings before any edit, read from a reset copy of the form. */
  const initialSettings = () => {
    const copy = /** @type {HTMLFormElement | undefined} */ (form.current?.cloneNode(true))
    copy?.reset()
    return /** @type {Record<string, unknown>} */ (settingsIn(new FormData(copy)))
  }

  const change = (/** @type {any} */ { target }) => {
    const { is_byok_only, is_fallback, is_required } = currentSettings()
    setConflict(Boolean(is_fallback && (is_byok_only || is_required)))
    if (target.name === "allowed_models") setShownDoubt("")
    clearIssue(target.name)
  }
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    if (busy) return
    if (hasConflict) return document.getElementsByName("is_fallback")[0]?.focus()
    const initial = initialSettings()
    const isChanged = (/** @type {[string, unknown]} */ [name, value]) =>
      JSON.stringify(value) !== JSON.stringify(initial[name])
    const changes = Object.entries(currentSettings()).filter(isChanged)
    if (changes.length === 0) return cancel()
    const isChangedList = changes.some(([name]) => name === "allowed_models")
    const doubt = (isChangedList && doubtOf(currentSettings().allowed_models)) || ""
    setShownDoubt(doubt)
    if (doubt !== "" && doubt !== shownDoubt)
      return showIssues({ allowed_models: `${doubt} If it is right, press the button again.` })
    setBusy(true)
    showIssues({})
    await save(Object.fromEntries(changes)).catch(showFailure)
    setBusy(false)
  }
  const box = (/** @type {string} */ name, /** @type {any} */ words, /** @type {boolean} */ checked, value = "true") =>
    html`<label class="box"
      ><input type="checkbox" name=${name} value=${value} defaultChecked=${checked} /> ${words}</label
    >`
  const lines = (/** @type {"allowed_models" | "allowed_user_ids"} */ id, /** @type {string} */ hint) =>
    html`<${Field}
      id=${id}
      label=${members[id]}
      hint=${`${of[id]?.length === 0 ? "Currently: none. " : ""}${hint}`}
      error=${issues[id]}
      multiline
      rows=${Math.min(8, Math.max(2, of[id]?.length ?? 0))}
      defaultValue=${(of[id] ?? []).join("\n")}
    />`
  const hashes = of.allowed_api_key_hashes ?? []
  const apiKeys = (/** @type {ApiKey[]} */ all) => {
    const shown = [...new Set([...all.map(({ hash }) => hash), ...hashes])]
    return (
      shown.length > 0 &&
      html`<fieldset>
        <legend>API keys</legend>
        ${shown.map((hash) => box("allowed_api_key_hashes", html`<${ApiKeyName} hash=${hash} all=${all} />`, hashes.includes(hash), hash))}
        <small>Requests with these use the key. None chosen: every API key.</small>
      </fieldset>`
    )
  }
  return html`<${Heading}>Settings of <${Name} of=${of.name ?? of.label} /><//>
    <form ref=${form} onSubmit=${submit} onInput=${change}>
      ${lines("allowed_models", "One a line, such as vendor/model. Empty: every model.")}
      ${lines("allowed_user_ids", "The ids of your users, one a line. Empty: every user.")}
      <${Read} path="/api-keys">${apiKeys}<//>
      <fieldset>
        <legend>Shared capacity</legend>
        <small>Keys that are not yours, and may serve your requests as well.</small>
        ${box("is_fallback", "Use this key only after all other keys and shared capacity", of.is_fallback)}
        <div role="alert">
          ${
            hasConflict &&
            html`<small class="error"
              >A key that comes after shared capacity cannot forbid it: clear this, or the two below.</small
            >`
          }
        </div>
        ${box("is_byok_only", "Use only my keys for the models of this key", of.is_byok_only)}
        ${box("is_required", `Never use shared capacity of ${providerName(of.provider)}, whatever the model`, of.is_required)}
      </fieldset>
      ${
        of.provider === "azure"
          ? html`<${Field} id="declared_region" label="Region" error=${issues["declared_region"]}
              >${options(regions, of.declared_region)}<//
            >`
          : takesRegion(of.provider) &&
            html`<p>
              <small
                >The region comes with the
                key${of.declared_region === null ? ", and this one names none" : `: ${wordsOf(regions, of.declared_region)}`}.</small
              >
            </p>`
      }
      <${Field} id="declared_zdr" label="Zero data retention" error=${issues["declared_zdr"]}
        >${options(zdr, of.declared_zdr)}<//
      >
      ${alert}
      <div class="row">
        <button class="primary" aria-disabled=${String(busy)}>${busy ? "Saving…" : "Save settings"}</button>
        <button type="button" onClick=${cancel}>Cancel</button>
      </div>
    </form>`
}
