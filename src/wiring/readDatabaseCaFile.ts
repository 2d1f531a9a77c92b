import { X509Certificate } from "node:crypto"
import { readFileSync } from "node:fs"
import { Effect } from "effect"
import { InvalidSetting } from "./Settings.ts"

const begin = "-----BEGIN CERTIFICATE-----"

const isCertificate = (pem: string) => {
  try {
    new X509Certificate(pem)
    return true
  } catch {
    return false
  }
}

const faultOf = (text: string) => {
  const certificates = text.split(begin).slice(1)
  if (certificates.length === 0) return "none"
  return certificates.every((rest) => isCertificate(begin + rest)) ? undefined : "a damaged one"
}

const refuse = (found: string) =>
  new InvalidSetting({ message: `DATABASE_CA_FILE must be a file of PEM certificates; found ${found}.` })

/** Reads PEM certificates and checks them: Node would silently accept any other text, and then trust nobody. */
export const readDatabaseCaFile = (path: string): Effect.Effect<string, InvalidSetting> =>
  Effect.try({
    try: () => readFileSync(path, "utf8"),
    catch: (cause) => refuse(cause instanceof Error && "code" in cause ? String(cause.code) : "an unknown error")
  }).pipe(
    Effect.tap((text) => {
      const fault = faultOf(text)
      return fault === undefined ? Effect.void : Effect.fail(refuse(fault))
    })
  )
