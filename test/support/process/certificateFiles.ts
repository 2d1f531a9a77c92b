import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { selfSignedCertificate } from "../keys/selfSignedCertificate.ts"
import { temporaryDirectory } from "./temporaryDirectory.ts"

/** Files of a certificate for a host and of its key, which can be replaced by those of another. */
export const certificateFiles = Effect.map(temporaryDirectory, (directory) => {
  const variables = { TLS_CERT_FILE: join(directory, "cert.pem"), TLS_KEY_FILE: join(directory, "key.pem") }
  const replace = () => {
    const { certificate, key } = selfSignedCertificate("127.0.0.1")
    writeFileSync(variables.TLS_CERT_FILE, certificate)
    writeFileSync(variables.TLS_KEY_FILE, key)
    return certificate
  }
  return { variables, certificate: replace(), replace }
})
