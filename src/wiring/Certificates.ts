import { X509Certificate } from "node:crypto"
import { readFileSync } from "node:fs"
import { createSecureContext } from "node:tls"
import { Effect } from "effect"
import { type InvalidSetting, refuse } from "./Environment.ts"
import type { TlsFiles } from "./Settings.ts"

type Refusal = (found: string) => Effect.Effect<never, InvalidSetting>

const read = (path: string, refusal: Refusal) =>
  Effect.try({
    try: () => readFileSync(path, "utf8"),
    catch: (cause) => (cause as NodeJS.ErrnoException).code ?? "an unknown error"
  }).pipe(Effect.catch(refusal))

/** Reads the server's certificate and its key, and checks that they belong together. */
export const readCertificate = Effect.fnUntraced(function* ({ certificateFile, keyFile }: TlsFiles) {
  const readFile = (name: string, path: string) =>
    read(path, (found) => refuse(`${name} must be a readable file; found ${found}.`))
  const cert = yield* readFile("TLS_CERT_FILE", certificateFile)
  const key = yield* readFile("TLS_KEY_FILE", keyFile)
  return yield* Effect.try(() => {
    createSecureContext({ cert, key })
    return { cert, key }
  }).pipe(Effect.catch(() => refuse("TLS_CERT_FILE and TLS_KEY_FILE must be a PEM certificate and its private key.")))
})

const begin = "-----BEGIN CERTIFICATE-----"

/** Reads PEM certificates and checks them: Node would silently accept any other text, and then trust nobody. */
export const readDatabaseCaFile = (path: string): Effect.Effect<string, InvalidSetting> => {
  const refusal: Refusal = (found) => refuse(`DATABASE_CA_FILE must be a file of PEM certificates; found ${found}.`)
  return Effect.tap(read(path, refusal), (text) => {
    const [, ...certificates] = text.split(begin)
    if (certificates.length === 0) return refusal("none")
    const parseAll = Effect.try(() => certificates.forEach((rest) => new X509Certificate(begin + rest)))
    return Effect.catch(parseAll, () => refusal("a damaged one"))
  })
}
