import type { Server } from "node:http"
import { Server as TlsServer } from "node:tls"
import { Context, Effect, Layer } from "effect"
import type { Certificate } from "./Certificate.ts"

/** The certificate that the running server shows; none over plain HTTP. */
export class CertificateInUse extends Context.Service<
  CertificateInUse,
  {
    /** New connections get the new certificate, open ones keep theirs. */
    readonly replace: (certificate: Certificate) => Effect.Effect<void>
  }
>()("byok/CertificateInUse") {}

export const layer = (server: Server) =>
  Layer.succeed(CertificateInUse, {
    replace: (certificate) =>
      Effect.sync(() => {
        if (server instanceof TlsServer) server.setSecureContext({ ...certificate, minVersion: "TLSv1.2" })
      })
  })
