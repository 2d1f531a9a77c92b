// @ts-check
import { keyFaultIn } from "./keyFault.js"
import { html } from "./preact.js"

/** The names of providers that cannot be derived from their slugs. @type {Record<string, string>} */
// prettier-ignore
const names = {
  ai21: "AI21 Labs", akashml: "AkashML", "amazon-bedrock/claude-on-aws": "Amazon Bedrock (Claude on AWS)",
  "anthropic/2": "Anthropic (second)", "arcee-ai": "Arcee AI", assemblyai: "AssemblyAI", azure: "Microsoft Azure",
  byteplus: "BytePlus", "claude-on-aws": "Claude on AWS", coreweave: "CoreWeave", deepinfra: "DeepInfra",
  deepseek: "DeepSeek", digitalocean: "DigitalOcean", elevenlabs: "ElevenLabs", fireworks: "Fireworks AI",
  gmicloud: "GMI Cloud", "google-ai-studio": "Google AI Studio (Gemini)", "google-vertex": "Google Vertex AI",
  heygen: "HeyGen", "io-net": "io.net", minimax: "MiniMax", mistral: "Mistral AI", moonshotai: "Moonshot AI (Kimi)",
  "near-ai": "NEAR AI", nvidia: "NVIDIA", openai: "OpenAI", sambanova: "SambaNova", siliconflow: "SiliconFlow",
  stepfun: "StepFun", thinkingmachines: "Thinking Machines", together: "Together AI", voyageai: "Voyage AI",
  wandb: "Weights & Biases", xai: "xAI (Grok)", "z-ai": "Z.AI (GLM)"
}

/** The name of a provider for people. */
export const providerName = (/** @type {string} */ slug) =>
  names[slug] ?? slug.replace(/(^|[-/])([a-z])/g, (_, before, letter) => (before && " ") + letter.toUpperCase())

/** Finds the slug of a provider by its slug or name, in any case. @param {string[]} slugs @param {string} text */
export const slugOf = (slugs, text) => {
  const wanted = text.trim().toLowerCase()
  return slugs.find((slug) => slug === wanted || providerName(slug).toLowerCase() === wanted)
}

/** The web page on which a provider issues keys, by slug. @type {Record<string, string>} */
// prettier-ignore
const keyPages = {
  "amazon-bedrock": "console.aws.amazon.com/bedrock/home#/api-keys",
  anthropic: "console.anthropic.com/settings/keys", azure: "ai.azure.com", cerebras: "cloud.cerebras.ai",
  cohere: "dashboard.cohere.com/api-keys", deepinfra: "deepinfra.com/dash/api_keys",
  deepseek: "platform.deepseek.com/api_keys", fireworks: "app.fireworks.ai/settings/users/api-keys",
  "google-ai-studio": "aistudio.google.com/apikey",
  "google-vertex": "console.cloud.google.com/iam-admin/serviceaccounts", groq: "console.groq.com/keys",
  mistral: "console.mistral.ai/api-keys", nvidia: "build.nvidia.com", openai: "platform.openai.com/api-keys",
  perplexity: "www.perplexity.ai/settings/api", together: "api.together.ai/settings/api-keys", xai: "console.x.ai"
}

export const KeyPageLink = (/** @type {{ of: string }} */ { of }) =>
  keyPages[of] !== undefined &&
  html`<p>
    <a href=${`https://${keyPages[of]}`} target="_blank" rel="noreferrer">Make a key at ${providerName(of)}</a> (opens a
    new tab)
  </p>`

/**
 * Providers whose keys are mostly JSON: the required members, and a description of the key.
 * @type {Record<string, [string[], string]>}
 */
const structured = {
  "amazon-bedrock": [
    ["accessKeyId", "secretAccessKey", "region"],
    "JSON with accessKeyId, secretAccessKey and region, or an API key."
  ],
  azure: [
    ["endpoint_url", "api_key"],
    "JSON with endpoint_url, api_key and the model, as one object or a list; or an API key."
  ],
  "google-vertex": [["client_email", "private_key_id", "private_key"], "The JSON file of a service account, whole."]
}

const formOf = (/** @type {string} */ slug) =>
  structured[slug === "claude-on-aws" ? "amazon-bedrock" : (slug.split("/")[0] ?? slug)]

/** Describes the form of a provider's keys if they may have several lines; undefined otherwise. */
export const multilineHintOf = (/** @type {string} */ slug) => formOf(slug)?.[1]

/** How keys begin, and of which provider they are. @type {[string, string][]} */
// prettier-ignore
const beginnings = [
  ["sk-ant-", "anthropic"], ["sk-proj-", "openai"], ["AIza", "google-ai-studio"], ["ABSK", "amazon-bedrock"],
  ["bedrock-api-key-", "amazon-bedrock"], ["csk-", "cerebras"], ["fw_", "fireworks"], ["gsk_", "groq"],
  ["nvapi-", "nvidia"], ["pplx-", "perplexity"], ["xai-", "xai"]
]

/**
 * Says why a text may not be a key of the provider; undefined if it looks like one. A hint only: some keys are unusual.
 * @param {string} key @param {string} slug
 */
export const doubtOf = (key, slug) => {
  const [, owner] = beginnings.find(([beginning]) => key.startsWith(beginning)) ?? []
  if (owner !== undefined && slug.split("/")[0] !== owner)
    return `This looks like a key of ${providerName(owner)}, not of ${providerName(slug)}.`
  if (!/^\s*[[{]/.test(key)) {
    // The form refuses such a key, and says why.
    if (keyFaultIn(key) !== undefined) return undefined
    if (/[^!-~]/.test(key)) return "Keys seldom contain spaces or non-ASCII characters."
    return key.length < 12 ? "This is shorter than keys usually are." : undefined
  }
  const [members, hint] = formOf(slug) ?? [[], ""]
  try {
    const [first] = [JSON.parse(key)].flat()
    const missing = members.filter((member) => !first?.[member])
    return missing.length > 0 ? `This JSON has no ${missing.join(" and no ")}. Expected: ${hint}` : undefined
  } catch {
    return "This begins like JSON but is not valid JSON: perhaps its end is missing."
  }
}

/** Says how long a token made from the key stays valid after the key is replaced or deleted. */
export const TokenValidity = (/** @type {{ of: string }} */ { of }) => {
  const [provider] = of.split("/")
  const time =
    provider === "google-vertex" ? "an hour" : formOf(of) === structured["amazon-bedrock"] ? "15 minutes" : undefined
  return (
    time &&
    html`<p>
      <small>The key is out of use at once, but a token made from it earlier stays valid for up to ${time}.</small>
    </p>`
  )
}
