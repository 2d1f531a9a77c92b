// @ts-check
import { html } from "./preact.js"
import { Name } from "./parts.js"

/** The names of a credential's members in errors and events that owners read. @type {Record<string, string>} */
export const members = {
  provider: "Provider",
  key: "API key",
  name: "Name",
  ids: "The order",
  disabled: "On or off",
  is_fallback: "Use only after all others",
  is_byok_only: "Shared capacity for its models",
  is_required: "Shared capacity",
  allowed_models: "Models",
  allowed_user_ids: "Users",
  allowed_api_key_hashes: "API keys",
  declared_region: "Region",
  declared_zdr: "Zero data retention"
}

/** Replaces the names of members in a sentence of the service with the words of this page. @param {string} text */
export const inWords = (text) =>
  text.replace(/[a-z]+(_[a-z]+)+/g, (name) => (members[name] ? `“${members[name]}”` : name))

/** The word for each state, and a sentence for the owner. @type {Record<string, [string, string]>} */
export const states = {
  active: ["Active", "This key is used."],
  failing: [
    "Failing",
    "This key is used, but the provider refused it, or all requests with it, when it was last tried."
  ],
  parked: ["Parked", "The provider refused this key, so it is not used now."],
  disabled: ["Off", "This key is switched off and is not used."],
  leaked: ["Leaked", "This key is known to have leaked. It is not used until it is replaced."],
  unreadable: [
    "Unreadable",
    "This key cannot be opened any more, so it can only be renamed or deleted. Delete it and add it again, or ask whoever sent you the link."
  ]
}

export const State = (/** @type {{ of: string | undefined }} */ { of }) =>
  of && html`<span class=${`state ${of}`}>${states[of]?.[0] ?? of}</span>`

/** @type {Record<string, string>} */
const causes = {
  rejected: "the provider rejected it",
  forbidden: "the provider denied it access",
  quota_exhausted: "its quota was used up",
  rate_limited: "its rate limit was reached",
  upstream_failed: "the provider failed",
  leaked: "it leaked"
}

export const causeOf = (/** @type {string} */ cause) => causes[cause] ?? cause

/** Words for an action, or for an action and its only changed member. @type {Record<string, string>} */
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
const actors = { link: "with a link", cli: "by an operator", service: "" }

/** Describes an audit event: the action, its details, and who did it. */
export const EventText = (/** @type {{ of: any }} */ { of: { action, actor, cause, fields = [], model } }) => {
  const exactWords = acts[`${action} ${fields}`]
  const changed = exactWords ? "" : fields.map((/** @type {string} */ one) => members[one] ?? one).join(", ")
  const by =
    actor.kind === "api_key"
      ? actor.name
        ? html`by the API key <${Name} of=${actor.name} />`
        : "by an API key that no longer exists"
      : (actors[actor.kind] ?? "by the gateway")
  return html`${exactWords ?? acts[action] ?? action}${changed && `: ${changed}`}${cause && `: ${causeOf(cause)}`}${
    model && html`, for <${Name} of=${model} />`
  }${by && html`, ${by}`}`
}
