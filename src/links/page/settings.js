// @ts-check
import { ask } from "./api.js"
import { Field, Heading, Name, refusing } from "./form.js"
import { html, useEffect, useRef, useState } from "./preact.js"
import { providerName } from "./providers.js"

/** @typedef {import("./api.js").Credential} Credential */
/** @typedef {{ hash: string, name: string }} ApiKey */

/** The account's API keys, by which a key may be restricted. @returns {ApiKey[] | undefined} */
const useApiKeys = () => {
  const [keys, set] = useState(/** @type {ApiKey[] | undefined} */ (undefined))
  useEffect(() => void ask("GET", "/api-keys").then(set, () => {}), [])
  return keys
}

const ApiKeyName = (/** @type {{ hash: string, all: ApiKey[] | undefined }} */ { all, hash }) => {
  const known = all?.find((one) => one.hash === hash)
  return known ? html`<${Name} of=${known.name} />` : html`<span>one that ends in ${hash.slice(-4)}</span>`
}

const zdr = [
  ["", "As the service has it for the provider"],
  ["true", "Yes: the provider keeps nothing of requests"],
  ["false", "No: not for requests that ask for it"]
]
const regions = [
  ["", "Not declared"],
  ["global", "Global"],
  ["europe", "Europe"],
  ["us", "United States"]
]

const wordsOf = (/** @type {string[][]} */ choices, /** @type {unknown} */ value) =>
  choices.find(([one]) => one === String(value ?? ""))?.[1]

const takesRegion = (/** @type {string} */ provider) => ["azure", "openai", "fireworks"].includes(provider)

const list = (/** @type {any[] | null} */ all, /** @type {string} */ every) =>
  all === null ? every : all.length === 0 ? "None" : html`${all.map((one, n) => html`${n > 0 && ", "}${one}`)}`

/** Whom a key serves, and what it lets be used beside it: rows of a table. @param {{ of: Credential }} props */
export const Settings = ({ of }) => {
  const all = useApiKeys()
  const named = (/** @type {string[] | null} */ texts) => texts && texts.map((text) => html`<${Name} of=${text} />`)
  const provider = providerName(of.provider)
  const beside = [
    of.is_fallback && "Tried after all other keys, and after shared capacity",
    of.is_byok_only && "Shared capacity is not used for its models",
    of.is_required && `Shared capacity of ${provider} is not used for any model`
  ].filter(Boolean)
  return Object.entries({
    Models: list(named(of.allowed_models), "Every model"),
    Users: list(named(of.allowed_user_ids), "Every user"),
    "API keys": list(
      of.allowed_api_key_hashes &&
        of.allowed_api_key_hashes.map((hash) => html`<${ApiKeyName} hash=${hash} all=${all} />`),
      "Every API key"
    ),
    "Shared capacity": beside.length === 0 ? "Used after this key" : `${beside.join(". ")}.`,
    ...(takesRegion(of.provider) ? { Region: wordsOf(regions, of.declared_region) } : {}),
    "Zero data retention": wordsOf(zdr, of.declared_zdr)
  }).map(
    ([name, value]) =>
      html`<tr>
        <th scope="row">${name}</th>
        <td>${value}</td>
      </tr>`
  )
}

const options = (/** @type {string[][]} */ choices, /** @type {unknown} */ value) =>
  choices.map(([one, words]) => html`<option value=${one} selected=${one === String(value ?? "")}>${words}</option>`)

const linesOf = (/** @type {FormDataEntryValue | null} */ text) => {
  const lines = String(text ?? "")
    .split("\n")
    .map((line) => line.trim())
  return lines.filter((line, n) => line !== "" && lines.indexOf(line) === n)
}

/** What a form says of a key, in the words of the contract. @param {FormData} given */
const settingsIn = (given) => {
  const orNull = (/** @type {string[]} */ all) => (all.length === 0 ? null : all)
  const declared = given.get("declared_zdr")
  return {
    allowed_models: orNull(linesOf(given.get("allowed_models"))),
    allowed_user_ids: orNull(linesOf(given.get("allowed_user_ids"))),
    allowed_api_key_hashes: orNull(given.getAll("allowed_api_key_hashes").map(String)),
    is_fallback: given.has("is_fallback"),
    is_byok_only: given.has("is_byok_only"),
    is_required: given.has("is_required"),
    declared_zdr: declared === "" ? null : declared === "true",
    ...(given.has("declared_region") ? { declared_region: given.get("declared_region") || null } : {})
  }
}

/** Changes whom a key serves. Only what was changed here is sent: what others changed meanwhile stays. @param {{ of: Credential,
 *   save: (changes: object) => Promise<void>, cancel: () => void }} props */
export const SettingsForm = ({ cancel, of, save }) => {
  const all = useApiKeys()
  const form = useRef(/** @type {HTMLFormElement | null} */ (null))
  const before = useRef(/** @type {Record<string, unknown> | undefined} */ (undefined))
  const [issues, setIssues] = useState(/** @type {Record<string, string>} */ ({}))
  const [failure, setFailure] = useState("")
  const [busy, setBusy] = useState(false)
  const now = () => /** @type {Record<string, unknown>} */ (settingsIn(new FormData(form.current ?? undefined)))
  useEffect(() => {
    if (all !== undefined) before.current = now()
  }, [all])

  const check = () => {
    const { is_byok_only, is_fallback, is_required } = now()
    const clash = is_fallback && (is_byok_only || is_required)
    setIssues(
      clash
        ? { is_fallback: "A key that comes after shared capacity cannot forbid it: clear this, or the two below." }
        : {}
    )
    return !clash
  }
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault()
    if (busy || !check()) return
    const changes = Object.entries(now()).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(before.current?.[name])
    )
    if (changes.length === 0) return cancel()
    setBusy(true)
    setFailure("")
    await save(Object.fromEntries(changes)).catch((error) => {
      setBusy(false)
      const { elsewhere, here } = refusing(error, form.current)
      setIssues(here)
      setFailure(elsewhere)
    })
  }
  const box = (/** @type {string} */ name, /** @type {any} */ words, /** @type {boolean} */ checked, value = "true") =>
    html`<label class="box"
      ><input type="checkbox" name=${name} value=${value} defaultChecked=${checked} /> ${words}</label
    >`
  const lines = (
    /** @type {string} */ id,
    /** @type {string} */ label,
    /** @type {string} */ hint,
    /** @type {string[] | null} */ value
  ) =>
    html`<${Field}
      id=${id}
      label=${label}
      hint=${`${value?.length === 0 ? "Now: none. " : ""}${hint}`}
      error=${issues[id]}
      multiline
      rows=${Math.min(8, Math.max(2, value?.length ?? 0))}
      defaultValue=${(value ?? []).join("\n")}
    />`
  if (all === undefined) return html`<p role="status">Loading…</p>`
  const hashes = of.allowed_api_key_hashes ?? []
  const shown = [...all.map(({ hash }) => hash), ...hashes.filter((hash) => !all.some((one) => one.hash === hash))]
  return html`<${Heading}>Settings of <${Name} of=${of.name ?? of.label} /><//>
    <form ref=${form} onSubmit=${submit} onChange=${check}>
      ${lines("allowed_models", "Models", "One a line, such as vendor/model. Empty: every model.", of.allowed_models)}
      ${lines("allowed_user_ids", "Users", "The ids of your users, one a line. Empty: every user.", of.allowed_user_ids)}
      ${
        shown.length > 0 &&
        html`<fieldset>
          <legend>API keys</legend>
          ${shown.map((hash) => box("allowed_api_key_hashes", html`<${ApiKeyName} hash=${hash} all=${all} />`, hashes.includes(hash), hash))}
          <small>Requests with these use the key. None chosen: every API key.</small>
        </fieldset>`
      }
      <fieldset>
        <legend>Shared capacity</legend>
        ${box("is_fallback", "Use this key only after all other keys and shared capacity", of.is_fallback)}
        <div role="alert">${issues["is_fallback"] && html`<small class="error">${issues["is_fallback"]}</small>`}</div>
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
      <div role="alert">${failure && html`<small class="error">${failure}</small>`}</div>
      <div class="row">
        <button class="primary" aria-disabled=${String(busy)}>${busy ? "Saving…" : "Save settings"}</button>
        <button type="button" onClick=${cancel}>Cancel</button>
      </div>
    </form>`
}
