import { Effect, Layer, Option, Redacted } from "effect"
import { readPrivateText } from "../crypto/keyring/SecretFile.ts"
import { type Endpoint, WebhookEndpoint } from "../service/audit/Webhook.ts"
import { refuse, refuseAs } from "./Environment.ts"
import type { Settings } from "./Settings.ts"

const setting = "BYOK_WEBHOOK_SECRET_FILE"

/** Parses the secrets of a file: one per line, `whsec_` and 24 to 64 bytes in Base64. */
const secretsIn = (text: string) => {
  const lines = text.split(/\r?\n/).filter((line) => line !== "")
  const bytes = lines.map((line) => Buffer.from(line.slice("whsec_".length), "base64"))
  const areEncoded = lines.every((line, index) => line === `whsec_${bytes[index]?.toString("base64")}`)
  return areEncoded && bytes.length > 0 && bytes.every(({ length }) => length >= 24 && length <= 64)
    ? Effect.succeed(bytes.map((secret) => Redacted.make<Uint8Array>(secret)))
    : refuse(`${setting} must have lines of whsec_ and 24 to 64 bytes in Base64.`)
}

const endpointOf = ({ webhook }: Settings) =>
  Option.match(webhook, {
    onNone: () => Effect.succeed(Option.none<Endpoint>()),
    onSome: ({ secretFile, url }) =>
      Effect.map(Effect.flatMap(refuseAs(setting)(readPrivateText(secretFile)), secretsIn), (secrets) =>
        Option.some({ url, secrets })
      )
  })

export const layer = (settings: Settings) => Layer.effect(WebhookEndpoint, endpointOf(settings))
