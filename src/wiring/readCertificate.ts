import { readFileSync } from "node:fs"
import { createSecureContext } from "node:tls"
import { Effect } from "effect"
import { InvalidSetting, type TlsFiles } from "./Settings.ts"

const codeOf = (cause: unknown) => (cause instanceof Error && "code" in cause ? String(cause.code) : "an unknown error")

const read = (name: string, path: string) =>
  Effect.try({
    try: () => readFileSync(path, "utf8"),
    catch: (cause) => new InvalidSetting({ message: `${name} must be a readable file; found ${codeOf(cause)}.` })
  })

/** Reads the server's certificate and its key, and checks that they belong together. */
export const readCertificate = Effect.fnUntraced(function* (files: TlsFiles) {
  const cert = yield* read("TLS_CERT_FILE", files.certificateFile)
  const key = yield* read("TLS_KEY_FILE", files.keyFile)
  return yield* Effect.try({
    try: () => {
      createSecureContext({ cert, key })
      return { cert, key }
    },
    catch: () =>
      new InvalidSetting({ message: "TLS_CERT_FILE and TLS_KEY_FILE must be a PEM certificate and its private key." })
  })
})
