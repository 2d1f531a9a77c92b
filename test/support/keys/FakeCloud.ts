import { createHash, createHmac, randomBytes, createSecretKey } from "node:crypto"
import { writeFileSync } from "node:fs"
import { createServer as createHttpServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { createServer as createHttpsServer } from "node:https"
import type { AddressInfo } from "node:net"
import type { Duplex } from "node:stream"
import { Effect } from "effect"
import { decrypt, encrypt, nonceLength } from "../../../src/runtime/AesGcm.ts"
import { selfSignedCertificate } from "./selfSignedCertificate.ts"

export interface CloudRequest {
  readonly method: string
  readonly url: URL
  readonly headers: IncomingMessage["headers"]
  readonly body: string
}
/** A JSON answer; a number is the status of a refusal. */
type Answer = object | number
type Service = (request: CloudRequest) => Answer

const answering =
  (service: Service, scheme: "http" | "https") => async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Array<Buffer> = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const { headers, method = "", url = "" } = request
    const answer = service({
      method,
      headers,
      url: new URL(url, `${scheme}://${headers.host}`),
      body: Buffer.concat(chunks).toString()
    })
    const [status, body] = typeof answer === "number" ? [answer, { error: "refused" }] : [200, answer]
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
  }

const listening = (server: Server) =>
  Effect.acquireRelease(
    Effect.callback<string>((resume) => {
      server.listen(0, "127.0.0.1", () => {
        resume(Effect.succeed(`http://127.0.0.1:${(server.address() as AddressInfo).port}`))
      })
    }),
    () =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )

/** Serves at a URL of its own. */
export const serveAt = (service: Service) =>
  listening(createHttpServer((request, response) => void answering(service, "http")(request, response)))

/**
 * Serves `host` over TLS, and every host in the clear, as a proxy that clients are told to use: so they run with the
 * addresses of the real services. Writes the certificate to `file`.
 */
export const serveAs = (host: string, file: string, service: Service) => {
  const { certificate, key } = selfSignedCertificate(host)
  writeFileSync(file, certificate)
  const secured = createHttpsServer({ cert: certificate, key }, (request, response) => {
    void answering(service, "https")(request, response)
  })
  const proxy = createHttpServer((request, response) => void answering(service, "http")(request, response))
  proxy.on("connect", (_request: IncomingMessage, socket: Duplex) => {
    socket.write("HTTP/1.1 200 Connection established\r\n\r\n")
    secured.emit("connection", socket)
  })
  return listening(proxy)
}

/** Encrypts under a key that it never gives away, bound to a text. */
export const makeBox = () => {
  const key = createSecretKey(randomBytes(32))
  return {
    encrypt: (base64: string, bound: string) =>
      encrypt(key, randomBytes(nonceLength), Buffer.from(base64, "base64"), Buffer.from(bound)).toString("base64"),
    decrypt: (base64: string, bound: string) =>
      decrypt(key, Buffer.from(base64, "base64"), Buffer.from(bound))?.toString("base64")
  }
}

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex")
const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest()

/** Whether a request is signed with Signature Version 4 under the secret of this access key, now. */
export const isSignedBy = (
  { body, headers, method, url }: CloudRequest,
  accessKey: string,
  secret: string
): boolean => {
  const form =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/([^/]+)\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w{64})$/
  const [, id, date = "", region = "", service = "", names = "", signature] =
    form.exec(String(headers.authorization)) ?? []
  const time = String(headers["x-amz-date"])
  const signed = names.split(";").map((name) => `${name}:${String(headers[name]).trim()}\n`)
  const canonical = [method, url.pathname, url.search.slice(1), signed.join(""), names, sha256(body)].join("\n")
  const scope = [date, region, service, "aws4_request"]
  const key = scope.reduce<string | Buffer>(hmac, `AWS4${secret}`)
  const text = ["AWS4-HMAC-SHA256", time, scope.join("/"), sha256(canonical)].join("\n")
  const age = Date.now() - Date.parse(time.replace(/^(....)(..)(..T..)(..)(..Z)$/, "$1-$2-$3:$4:$5"))
  return id === accessKey && time.startsWith(date) && age < 300_000 && hmac(key, text).toString("hex") === signature
}

/** CRC32C (Castagnoli), as a decimal text. */
export const crc32c = (bytes: Uint8Array): string => {
  let crc = ~0
  for (const byte of bytes) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0)
  }
  return String(~crc >>> 0)
}
