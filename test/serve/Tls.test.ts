import { chmodSync, writeFileSync } from "node:fs"
import { request } from "node:https"
import { Effect } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { isLoopback } from "../../src/port/Links.ts"
import { migratedDatabase } from "../support/database/freshDatabase.ts"
import { eventually } from "../support/process/eventually.ts"
import { runByok } from "../support/process/runByok.ts"
import { open } from "../support/http/RawConnection.ts"
import { samplesIn, sumIn } from "../support/http/samplesIn.ts"
import { managementUrl, startService } from "../support/process/ServiceProcess.ts"
import { join } from "node:path"
import { selfSignedCertificate } from "../support/keys/selfSignedCertificate.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

/** Files of a certificate for a host and of its key, which can be replaced by those of another. */
const certificateFiles = Effect.map(temporaryDirectory, (directory) => {
  const variables = { TLS_CERT_FILE: join(directory, "cert.pem"), TLS_KEY_FILE: join(directory, "key.pem") }
  const replace = (until?: string) => {
    const { certificate, key } = selfSignedCertificate("127.0.0.1", until)
    writeFileSync(variables.TLS_CERT_FILE, certificate)
    writeFileSync(variables.TLS_KEY_FILE, key, { mode: 0o600 })
    return certificate
  }
  return { variables, certificate: replace(), replace }
})

const settings = Effect.map(migratedDatabase, (DATABASE_URL) => ({
  DATABASE_URL,
  BYOK_KEYRING: generateKeyring(new Date()),
  LOG_FORMAT: "logfmt"
}))

/** A get over TLS for which only one certificate is trusted. */
const getOver = (url: string, ca: string) =>
  Effect.callback<{ readonly status: number | undefined; readonly body: string }, Error>((resume) => {
    request(url, { ca, agent: false }, (response) => {
      let body = ""
      response.setEncoding("utf8").on("data", (part: string) => (body += part))
      response.once("end", () => resume(Effect.succeed({ status: response.statusCode, body })))
    })
      .once("error", (error) => resume(Effect.fail(error)))
      .end()
  })

/** Bytes sent to a port, and all that comes back until the connection closes. */
const exchange = (url: string, bytes: string) =>
  Effect.scoped(Effect.flatMap(open(url), ({ closed, write }) => Effect.andThen(write(bytes), closed)))

describe("with TLS_CERT_FILE and TLS_KEY_FILE (F19)", () => {
  it.live("the service serves HTTPS with that certificate, and refuses bad requests as over HTTP", function* () {
    const { certificate, variables } = yield* certificateFiles
    const { ended, signal, stderr, url } = yield* startService({ ...(yield* settings), ...variables })
    assert.match(url, /^https:/)
    assert.deepStrictEqual(yield* getOver(`${url}/health/live`, certificate), {
      status: 200,
      body: '{"status":"live"}'
    })
    assert.match(yield* exchange(url, "nonsense\r\n\r\n"), /^HTTP\/1\.1 400 [^]*"Invalid request parameters"/)
    assert.match(
      yield* exchange(url, `GET / HTTP/1.1\r\nHost: a\r\nA: ${"a".repeat(20_000)}\r\n\r\n`),
      /^HTTP\/1\.1 431 /
    )
    assert.notInclude(
      yield* exchange(url.replace("https:", "http:"), "GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"),
      "HTTP/1.1"
    )
    assert.notInclude(stderr(), "terminator")
    yield* signal("SIGTERM")
    assert.strictEqual(yield* ended, 0)
  })

  it.live(
    "SIGHUP loads a new certificate; if it is unusable, the old one stays, and a log line and a metric say so",
    function* () {
      const { certificate, replace, variables } = yield* certificateFiles
      const other = { LOG_LEVEL: "info", BYOK_MANAGEMENT_PORT: "0" }
      const service = yield* startService({ ...(yield* settings), ...variables, ...other })
      const { signal, stderr, url } = service
      const trusts = (ca: string) => Effect.isSuccess(getOver(`${url}/health/live`, ca))
      const management = yield* managementUrl(service)
      /** Reloads that succeeded, reloads that failed, and the year in which the certificate expires. */
      const shown = Effect.promise(async () => {
        const samples = samplesIn(await (await fetch(`${management}/metrics`)).text())
        const reloads = (result: string) => sumIn(samples, "byok_certificate_reloads_total", { result })
        const expires = sumIn(samples, "byok_certificate_expiry_time_seconds") ?? 0
        return [reloads("ok"), reloads("failed"), new Date(1000 * expires).getUTCFullYear()]
      })
      assert.isTrue(yield* trusts(certificate))
      assert.deepStrictEqual(yield* shown, [0, 0, 9999])

      const second = replace("20400101000000Z")
      assert.isFalse(yield* trusts(second))
      yield* signal("SIGHUP")
      yield* eventually("the second certificate", trusts(second))
      assert.isFalse(yield* trusts(certificate))
      assert.deepStrictEqual(yield* shown, [1, 0, 2040])

      writeFileSync(variables.TLS_KEY_FILE, "canary")
      yield* signal("SIGHUP")
      yield* eventually("a sentence in the log", () => stderr().includes("Certificate not reloaded"))
      assert.include(
        stderr(),
        "Certificate not reloaded. TLS_CERT_FILE and TLS_KEY_FILE must be a PEM certificate and its private key."
      )
      assert.notInclude(stderr(), "canary")
      assert.isTrue(yield* trusts(second))
      assert.deepStrictEqual(yield* shown, [1, 1, 2040])
    }
  )

  it.live("the service does not start with missing files, a key others can read or an unrelated one", function* () {
    const { variables } = yield* certificateFiles
    const open = yield* certificateFiles
    chmodSync(open.variables.TLS_KEY_FILE, 0o644)
    const other = yield* certificateFiles
    const given = yield* settings
    const refusals = yield* Effect.forEach(
      [
        { ...variables, TLS_KEY_FILE: other.variables.TLS_KEY_FILE },
        { ...variables, TLS_CERT_FILE: "/canary" },
        { ...variables, TLS_KEY_FILE: "/canary" },
        open.variables
      ],
      (files) => runByok(["serve"], { ...given, ...files })
    )
    assert.deepStrictEqual(
      refusals.map(({ code, stderr, stdout }) => [code, stdout, stderr]),
      [
        [1, "", "TLS_CERT_FILE and TLS_KEY_FILE must be a PEM certificate and its private key.\n"],
        [1, "", "TLS_CERT_FILE must be a readable file: no such file or directory (ENOENT).\n"],
        [1, "", "TLS_KEY_FILE: expected a file that can be read: no such file or directory (ENOENT).\n"],
        [1, "", "TLS_KEY_FILE: expected a file of mode 0400 or 0600; found 0644.\n"]
      ]
    )
  })
})

describe("without a certificate (F19)", () => {
  it.live("HOST=0.0.0.0 logs a warning to set up TLS", function* () {
    const { stderr } = yield* startService({ ...(yield* settings), HOST: "0.0.0.0" })
    const warning = "put a TLS terminator in front, or set TLS_CERT_FILE"
    yield* eventually("a warning", () => stderr().includes(warning))
  })

  it("isLoopback recognises the hosts that need no TLS warning", () => {
    for (const host of ["127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "::1"])
      assert.isTrue(isLoopback(host), host)
    for (const host of ["0.0.0.0", "::", "128.0.0.1", "localhost.example"]) assert.isFalse(isLoopback(host), host)
  })

  it.live.each(["192.0.2.1", "canary.invalid"])("HOST=%s, no local address, is refused (C9)", function* (HOST) {
    const stderr = "HOST must be an address of this machine, or a name of one.\n"
    const finished = yield* runByok(["serve"], { ...(yield* settings), HOST, PORT: "0" })
    assert.deepStrictEqual(finished, { code: 1, stdout: "", stderr })
  })
})
