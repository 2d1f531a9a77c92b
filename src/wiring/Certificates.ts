import { X509Certificate } from "node:crypto"
import { fstatSync, readFileSync } from "node:fs"
import { createSecureContext } from "node:tls"
import { Effect } from "effect"
import { readPrivateText, whileOpen } from "../runtime/SecretFile.ts"
import { otherWriter } from "../runtime/otherWriter.ts"
import { systemFault } from "../runtime/systemFault.ts"
import { type InvalidSetting, refuse, refuseAs } from "./Environment.ts"
import type { TlsFiles } from "./Settings.ts"

/** Reads a public file, which others may not change. Does not judge its folder: Kubernetes opens those of ConfigMaps. */
const read = Effect.fnUntraced(function* (name: string, path: string) {
  const use = (descriptor: number) => ({
    other: otherWriter(fstatSync(descriptor)),
    text: readFileSync(descriptor, "utf8")
  })
  const { other, text } = yield* Effect.try({ try: () => whileOpen(path, use), catch: systemFault }).pipe(
    Effect.catch((fault) => refuse(`${name} must be a readable file: ${fault}.`))
  )
  if (other === undefined) return text
  return yield* refuse(`${name} must be a file that only root and this user can change; found that ${other} can.`)
})

/** Reads the server's certificate and its private key, and checks that they belong together. */
export const readCertificate = Effect.fnUntraced(function* ({ certificateFile, keyFile }: TlsFiles) {
  const cert = yield* read("TLS_CERT_FILE", certificateFile)
  const key = yield* refuseAs("TLS_KEY_FILE")(readPrivateText(keyFile))
  return yield* Effect.try(() => {
    createSecureContext({ cert, key })
    return { cert, key }
  }).pipe(Effect.catch(() => refuse("TLS_CERT_FILE and TLS_KEY_FILE must be a PEM certificate and its private key.")))
})

const beginLine = "-----BEGIN CERTIFICATE-----"

/** Reads PEM certificates and checks each: Node would accept any other text, and then trust no server. */
export const readDatabaseCaFile = (path: string): Effect.Effect<string, InvalidSetting> => {
  const refusal = (actual: string) => refuse(`DATABASE_CA_FILE must be a file of PEM certificates; found ${actual}.`)
  return Effect.tap(read("DATABASE_CA_FILE", path), (text) => {
    const [, ...certificates] = text.split(beginLine)
    if (certificates.length === 0) return refusal("none")
    const parseAll = Effect.try(() => certificates.forEach((rest) => new X509Certificate(beginLine + rest)))
    return Effect.catch(parseAll, () => refusal("a damaged one"))
  })
}
