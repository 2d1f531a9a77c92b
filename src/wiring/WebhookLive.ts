import { Effect, Layer, Option, Redacted } from "effect"
import { readPrivateText } from "../runtime/SecretFile.ts"
import { type Endpoint, WebhookEndpoint } from "../service/audit/Webhook.ts"
import { refuse, refuseAs } from "./Environment.ts"
import type { Settings } from "./Settings.ts"

const secretFileSetting = "BYOK_WEBHOOK_SECRET_FILE"

/** Parses the text of the secret file: one secret per line, `whsec_` and 24 to 64 bytes in Base64. */
const parseSecrets = (text: string) => {
  const lines = text.split(/\r?\n/).filter((line) => line !== "")
  const bytes = lines.map((line) => Buffer.from(line.slice("whsec_".length), "base64"))
  // Node ignores what is not Base64, so each line must be equal to its bytes encoded again.
  const areEncoded = lines.every((line, index) => line === `whsec_${bytes[index]?.toString("base64")}`)
  return areEncoded && bytes.length > 0 && bytes.every(({ length }) => length >= 24 && length <= 64)
    ? Effect.succeed(bytes.map((secret) => Redacted.make<Uint8Array>(secret)))
    : refuse(`${secretFileSetting} must have lines of whsec_ and 24 to 64 bytes in Base64.`)
}

const endpointOf = ({ webhook }: Settings) =>
  Option.match(webhook, {
    onNone: () => Effect.succeed(Option.none<Endpoint>()),
    onSome: ({ secretFile, url }) =>
      Effect.map(Effect.flatMap(refuseAs(secretFileSetting)(readPrivateText(secretFile)), parseSecrets), (secrets) =>
        Option.some({ url, secrets })
      )
  })

/** The endpoint in the settings, or none. Fails if the secret file is malformed or not private. */
export const layer = (settings: Settings) => Layer.effect(WebhookEndpoint, endpointOf(settings))
