import { Schema } from "effect"
import { checkInput } from "./checkInput.ts"
import { nearestWord } from "./nearestWord.ts"

const unknownSlug = "must be a known provider slug"

// prettier-ignore
const slugs = [
  "ai21", "aion-labs", "akashml", "alibaba", "amazon-bedrock", "amazon-bedrock/claude-on-aws", "amazon-nova", "ambient",
  "anthropic", "anthropic/2", "arcee-ai", "assemblyai", "atlas-cloud", "avian", "azure", "baidu", "baseten",
  "black-forest-labs", "byteplus", "cerebras", "chutes", "cirrascale", "clarifai", "claude-on-aws", "cloudflare", "cohere",
  "coreweave", "cosine", "crusoe", "darkbloom", "databricks", "decart", "deepgram", "deepinfra", "deepseek", "dekallm",
  "digitalocean", "elevenlabs", "featherless", "fireworks", "fish-audio", "friendli", "gmicloud", "google-ai-studio",
  "google-vertex", "groq", "heygen", "inception", "inceptron", "inferact-vllm", "inference-net", "infermatic", "inflection",
  "io-net", "ionstream", "krea", "liquid", "makora", "mancer", "mara", "meta", "minimax", "mistral", "modal", "modelrun",
  "modular", "moonshotai", "morph", "near-ai", "nebius", "nex-agi", "nextbit", "novita", "nvidia", "ollama", "open-inference",
  "openai", "parasail", "perceptron", "perplexity", "phala", "poolside", "primeintellect", "quiver", "recraft", "reka",
  "relace", "respan", "runway", "sail-research", "sakana", "sakana-ai", "sambanova", "scaledown", "seed", "siliconflow",
  "sourceful", "stepfun", "streamlake", "switchpoint", "tencent", "tenstorrent", "thinkingmachines", "together", "typesafe",
  "unbiased", "upstage", "venice", "voyageai", "wafer", "wandb", "wandb-legacy", "xai", "xiaomi", "z-ai"
] as const

/** An upstream provider (section 2.2, D27). */
export const Provider = Schema.Literals(slugs).annotate({
  message: unknownSlug,
  description: "Slug of the upstream provider."
})
export type Provider = typeof Provider.Type

const knownSlugs: ReadonlySet<unknown> = new Set(slugs)

/** The names that other gateways and users have for a provider, if no edit of two characters makes its slug of them. */
// prettier-ignore
const otherNames: { readonly [Slug in Provider]?: ReadonlyArray<string> } = {
  alibaba: ["dashscope", "qwen"],
  "amazon-bedrock": ["aws", "aws-bedrock", "bedrock", "bedrock-converse"],
  anthropic: ["claude"],
  azure: ["azure-ai", "azure-openai", "microsoft"],
  fireworks: ["fireworks-ai"],
  "google-ai-studio": ["gemini", "google", "google-ai", "google-gemini"],
  "google-vertex": ["gcp", "vertex", "vertex-ai", "vertexai"],
  moonshotai: ["kimi"],
  nvidia: ["nvidia-nim"],
  openai: ["chatgpt"],
  perplexity: ["perplexity-ai"],
  together: ["together-ai"],
  xai: ["grok"],
  "z-ai": ["glm", "zhipu", "zhipuai"]
}

const slugNear = (text: string): string | undefined => {
  const name = text.toLowerCase().replaceAll("_", "-")
  return slugs.find((slug) => otherNames[slug]?.includes(name) === true) ?? nearestWord(text, slugs)
}

/** The rule that a text breaks which is no provider's slug, with the slug that is likely meant, if any. */
export const unknownProvider = (text: string): string => {
  const nearest = slugNear(text)
  return nearest === undefined ? unknownSlug : `${unknownSlug}; the nearest is ${nearest}`
}

/** A provider in a request. The error for an unknown slug names the one that is likely meant, if any. */
export const RequestedProvider = Provider.pipe(
  checkInput((input) => {
    if (knownSlugs.has(input)) return true
    return typeof input === "string" ? unknownProvider(input) : unknownSlug
  })
)

/** A provider in a response: another version of the service may have stored a slug that this one does not know. */
export const StoredProvider = Schema.String.annotate({
  description:
    "Slug of the upstream provider: one that create accepts, or one that another version of the service accepted.",
  examples: ["openai", "amazon-bedrock/claude-on-aws"]
})

const regionKeyProviders: ReadonlySet<string> = new Set<Provider>(["openai", "fireworks"])

/** Whether a key of this provider may be a JSON object with `api_key` and `region` (D27, D28). */
export const takesRegionInKey = (provider: string): boolean => regionKeyProviders.has(provider)

const tokenProviders: ReadonlySet<string> = new Set<Provider>([
  "amazon-bedrock",
  "amazon-bedrock/claude-on-aws",
  "claude-on-aws",
  "google-vertex"
])

/** Whether a key of this provider may be a JSON object from which the service signs short-lived tokens (D57). */
export const signsTokens = (provider: string): boolean => tokenProviders.has(provider)

/** Whether all API keys of a provider that signs tokens have forms that tell them from other texts. */
export const hasKnownApiKeys = (provider: string): boolean =>
  provider === "amazon-bedrock" || provider === "google-vertex"

/** Providers whose key may be JSON with several secrets. The label of such a key shows only one member (D56). */
export const multiSecretProviders: ReadonlyArray<string> = [...tokenProviders, "azure"]
