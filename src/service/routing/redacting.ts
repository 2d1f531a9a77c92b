import { Redacted } from "effect"
import { secretsIn } from "../../domain/KeyMaterial.ts"
import type { Lease } from "./Lease.ts"

/** Shorter parts of key material, such as its region, are words that texts have anyway. */
const shortest = 8

/** The forms in which a secret turns up in an upstream's answer or an error. */
const formsOf = (secret: string): ReadonlyArray<string> => {
  const bytes = Buffer.from(secret)
  const hex = bytes.toString("hex")
  const base64 = bytes.toString("base64").replace(/=+$/, "")
  const escaped = JSON.stringify(secret).slice(1, -1)
  return [secret, escaped, encodeURIComponent(secret), base64, bytes.toString("base64url"), hex, hex.toUpperCase()]
}

/** Replaces every key that is leased now, and every secret inside it, by the id of its credential. */
export const redacting = (leases: Iterable<Lease>, text: string): string => {
  let redacted = text
  for (const lease of leases) {
    const { credential_id, provider } = lease.terms
    const key = lease.text()
    const secrets = secretsIn(provider, Redacted.make(key)).filter(
      (secret) => secret === key || secret.length >= shortest
    )
    const forms = Array.from(new Set(secrets.flatMap(formsOf))).sort((one, other) => other.length - one.length)
    for (const form of forms) redacted = redacted.replaceAll(form, () => `<${credential_id}>`)
  }
  return redacted
}
