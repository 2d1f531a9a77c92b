import { Arbitrary } from "effect"
import { elementOf, integer } from "../memory/arbitraries.ts"

const hex = "0123456789abcdef"
const lower = "0123456789abcdefghijklmnopqrstuvwxyz"
const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const base64 = `${base62}+/`
const base64url = `${base62}-_`

/** A form of keys: parts of text that all keys have, and alphabets with the number of characters from them. */
type Form = ReadonlyArray<string | readonly [alphabet: string, count: number]>

const uuid: Form = [[hex, 8], "-", [hex, 4], "-4", [hex, 3], "-a", [hex, 3], "-", [hex, 12]]
const jwt: Form = ["eyJ", [base64url, 60], ".eyJ", [base64url, 120], ".", [base64url, 86]]

/** The forms of the keys that providers issue, by provider. */
const forms: ReadonlyArray<readonly [provider: string, form: Form]> = [
  ["openai", ["sk-", [base62, 48]]],
  ["openai", ["sk-proj-", [base64url, 74], "T3BlbkFJ", [base64url, 74]]],
  ["openai", ["sk-svcacct-", [base64url, 74], "T3BlbkFJ", [base64url, 74]]],
  ["anthropic", ["sk-ant-api03-", [base64url, 93], "AA"]],
  ["google-ai-studio", ["AIza", [base64url, 35]]],
  ["google-ai-studio", ["AQ.Ab8", [base64url, 47]]],
  ["azure", [[hex, 32]]],
  ["azure", [[base62, 76], "AAABACOG", [base62, 4]]],
  ["amazon-bedrock", ["ABSK", [base64, 123], "=="]],
  ["amazon-bedrock", ["bedrock-api-key-", [base64, 400], "="]],
  ["groq", ["gsk_", [base62, 52]]],
  ["xai", ["xai-", [base62, 80]]],
  ["fireworks", ["fw_", [base62, 24]]],
  ["together", [[hex, 64]]],
  ["together", ["tgp_v1_", [base64url, 43]]],
  ["mistral", [[base62, 32]]],
  ["cohere", [[base62, 40]]],
  ["deepseek", ["sk-", [hex, 32]]],
  ["moonshotai", ["sk-", [base62, 48]]],
  ["z-ai", [[hex, 32], ".", [base62, 16]]],
  ["minimax", jwt],
  ["alibaba", ["sk-", [hex, 32]]],
  ["siliconflow", ["sk-", [lower, 48]]],
  ["perplexity", ["pplx-", [base62, 48]]],
  ["cerebras", ["csk-", [lower, 48]]],
  ["sambanova", uuid],
  ["nvidia", ["nvapi-", [base64url, 64]]],
  ["baidu", ["bce-v3/ALTAK-", [base62, 21], "/", [hex, 40]]],
  ["cloudflare", [[base64url, 40]]],
  ["databricks", ["dapi", [hex, 32], "-2"]],
  ["wandb", [[hex, 40]]],
  ["voyageai", ["pa-", [base64url, 43]]],
  ["elevenlabs", ["sk_", [hex, 48]]],
  ["byteplus", uuid],
  ["byteplus", ["AK", [base62, 45], ":", [base64, 58], "=="]],
  ["nebius", jwt],
  ["friendli", ["flp_", [base62, 46]]],
  ["baseten", [[base62, 8], ".", [base62, 32]]],
  ["modal", ["ak-", [base62, 22], ":as-", [base62, 22]]],
  ["upstage", ["up_", [base62, 29]]],
  ["ai21", [[base62, 32]]],
  ["stepfun", [[base62, 60]]],
  ["venice", [[base64url, 43]]]
]

const textOf = (form: Form): Arbitrary.Arbitrary<string> =>
  Arbitrary.map(
    Arbitrary.all(
      form.map((part) =>
        typeof part === "string"
          ? Arbitrary.Constant(part)
          : Arbitrary.map(
              Arbitrary.array(integer(0, part[0].length - 1), { minLength: part[1], maxLength: part[1] }),
              (indices) => indices.map((index) => part[0].charAt(index)).join("")
            )
      )
    ),
    (parts) => parts.join("")
  )

/** A generated key of a form that a provider issues. */
export const providerKey: Arbitrary.Arbitrary<string> = Arbitrary.flatMap(elementOf(forms), ([, form]) => textOf(form))

/** A generated access key of AWS: of a user, or of a session. */
export const awsAccessKey = Arbitrary.map(
  Arbitrary.all({
    kind: elementOf(["AKIA", "ASIA"]),
    id: textOf([["ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16]]),
    secretAccessKey: textOf([[base64, 40]]),
    sessionToken: textOf(["IQoJb3JpZ2luX2Vj", [base64, 300], "=="])
  }),
  ({ id, kind, secretAccessKey, sessionToken }) => ({
    accessKeyId: kind + id,
    secretAccessKey,
    ...(kind === "ASIA" ? { sessionToken } : {}),
    region: "us-east-1"
  })
)
