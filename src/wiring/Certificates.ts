import { X509Certificate } from "node:crypto"
import { readFileSync } from "node:fs"
import { createSecureContext } from "node:tls"
import { Effect } from "effect"
import { InvalidSetting, type TlsFiles } from "./Settings.ts"

const refuse = (message: string) => new InvalidSetting({ message })

const read = (path: string, refusal: (found: string) => InvalidSetting) =>
  Effect.try({
    try: () => readFileSync(path, "utf8"),
    catch: (cause) => refusal(cause instanceof Error && "code" in cause ? String(cause.code) : "an unknown error")
  })

/** Reads the server's certificate and its key, and checks that they belong together. */
export const readCertificate = Effect.fnUntraced(function* ({ certificateFile, keyFile }: TlsFiles) {
  const readFile = (name: string, path: string) =>
    read(path, (found) => refuse(`${name} must be a readable file; found ${found}.`))
  const cert = yield* readFile("TLS_CERT_FILE", certificateFile)
  const key = yield* readFile("TLS_KEY_FILE", keyFile)
  return yield* Effect.try({
    try: () => {
      createSecureContext({ cert, key })
      return { cert, key }
    },
    catch: () => refuse("TLS_CERT_FILE and TLS_KEY_FILE must be a PEM certificate and its private key.")
  })
})

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

/** Reads PEM certificates and checks them: Node would silently accept any other text, and then trust nobody. */
export const readDatabaseCaFile = (path: string): Effect.Effect<string, InvalidSetting> => {
  const refusal = (found: string) => refuse(`DATABASE_CA_FILE must be a file of PEM certificates; found ${found}.`)
  return Effect.tap(read(path, refusal), (text) => {
    const fault = faultOf(text)
    return fault === undefined ? Effect.void : Effect.fail(refusal(fault))
  })
}
