import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { readdirSync, readFileSync } from "node:fs"
import { createServer, type IncomingMessage } from "node:http"
import { connect, createServer as createSocket } from "node:net"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { getToken } from "@aws/bedrock-token-generator"
import { Effect, Option, Redacted } from "effect"
import { importSPKI, jwtVerify } from "jose"
import { vi } from "vitest"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { listening } from "../support/database/listen.ts"
import { createdId } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { accessKey, rsaKey, serviceAccount } from "../support/keys/cloudKeys.ts"
import { leakSearch } from "../support/keys/leakSearch.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { eventually } from "../support/process/eventually.ts"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, layerLive } from "../support/it.ts"

const keyring = generateKeyring(new Date())
const settings = <S extends object>(given: S) => ({ ...given, keyring: Option.some(Redacted.make(keyring)) })

/** A part of the key that differs from other keys. */
const body = serviceAccount.private_key.replace(/-----[A-Z ]+-----|\s/g, "").slice(64)
const cases = [
  {
    provider: "amazon-bedrock",
    key: JSON.stringify(accessKey),
    secret: accessKey.secretAccessKey,
    request: "POST bedrock-runtime.us-east-1.amazonaws.com/model/us.a-model-v1%3A0/converse"
  },
  {
    provider: "google-vertex",
    key: JSON.stringify({ ...serviceAccount, region: "us-east5" }),
    secret: body,
    request:
      "POST us-east5-aiplatform.googleapis.com/v1/projects/fake-project/locations/us-east5/publishers/google/models/a-model:generateContent"
  }
] as const

/** Whether a token is one that AWS's own generator makes of the access key, at the token's time. */
const isOfBedrock = async (token: string) => {
  const url = Buffer.from(token.replace("bedrock-api-key-", ""), "base64").toString()
  const [, ...date] = /X-Amz-Date=(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z/.exec(url) ?? []
  const [year = 0, month = 1, ...rest] = date.map(Number)
  vi.useFakeTimers({ now: Date.UTC(year, month - 1, ...rest), toFake: ["Date"] })
  const expected = await getToken({ credentials: accessKey, region: accessKey.region, expiresInSeconds: 900 })
  vi.useRealTimers()
  return token === expected
}

const isOfVertex = async (token: string) =>
  jwtVerify(token, await importSPKI(rsaKey.publicKey, "RS256"), { issuer: serviceAccount.client_email }).then(
    () => true,
    () => false
  )

/** An upstream that verifies signatures, and answers only when it is told to. */
const verifyingUpstream = Effect.gen(function* () {
  const requests: Array<string> = []
  let release = () => {}
  const isValid = (token: string) => (token.startsWith("bedrock-api-key-") ? isOfBedrock(token) : isOfVertex(token))
  const answer = async ({ headers, method, url }: IncomingMessage) => {
    const token = (headers.authorization ?? "").replace("Bearer ", "")
    const valid = await isValid(token)
    const released = new Promise<void>((resolve) => void (release = resolve))
    requests.push(`${method} ${String(headers["x-host"])}${url}`)
    await released
    return valid
  }
  const server = createServer((request, response) => {
    request.resume()
    void answer(request).then((valid) =>
      response.writeHead(valid ? 200 : 401).end(valid ? "the signature is valid" : "no such key")
    )
  })
  const port = yield* listening(server)
  return { url: `http://127.0.0.1:${port}`, requests, answer: () => release() }
})

/** Passes a socket on to another one, and keeps what goes either way. */
const recordingSocket = (path: string, to: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const bytes: Array<Buffer> = []
        const server = createSocket((client) => {
          const service = connect(to)
          for (const [from, other] of [
            [client, service],
            [service, client]
          ] as const) {
            from.on("data", (part: Buffer) => bytes.push(part)).on("error", () => other.destroy())
            from.pipe(other)
          }
        }).listen(path)
        await once(server, "listening")
        return { bytes, server }
      }),
      ({ server }) => Effect.sync(() => void server.close())
    ),
    ({ bytes }) => Buffer.concat.bind(undefined, bytes)
  )

layerLive(TestService.layerWith({ settings }))("a gateway in another process", (it) => {
  /** What a gateway can see that asks for keys in one form: on the socket, in its memory, and in the output of both processes. */
  const observe = Effect.fnUntraced(function* ({ key, provider }: (typeof cases)[number], keys: string) {
    const { databaseUrl } = yield* TestService
    const { account_id, create } = yield* TestService.newTenant
    createdId(yield* create({ provider, key }))
    const directory = yield* temporaryDirectory
    const [socket, recorded] = [join(directory, "byok.sock"), join(directory, "recorded.sock")]
    const service = yield* startService({
      ...{ DATABASE_URL: databaseUrl, BYOK_KEYRING: keyring, BYOK_GATEWAY_SOCKET: socket },
      ...{ LOG_LEVEL: "trace", ACCESS_LOG: "true" }
    })
    const onSocket = yield* recordingSocket(recorded, socket)
    const upstream = yield* verifyingUpstream
    const script = join(import.meta.dirname, "../examples/cloud_gateway.py")
    const child = spawn("python3", [script, recorded, account_id, upstream.url, provider, keys])
    const said = Promise.all([text(child.stdout), text(child.stderr)])
    yield* eventually("the request to the upstream", () => upstream.requests.length === 1)
    // The gateway waits for the upstream now, with the request in memory.
    const dumped = spawnSync("gcore", ["-o", join(directory, "core"), String(child.pid)], { encoding: "utf8" })
    const file = readdirSync(directory).find((name) => name.startsWith("core."))
    const memory = file === undefined ? undefined : readFileSync(join(directory, file))
    upstream.answer()
    const [stdout, stderr] = yield* Effect.promise(() => said)
    return {
      ...{ stdout, stderr, memory, dumped: dumped.stderr, request: upstream.requests[0] },
      socket: onSocket(),
      logs: service.stdout() + service.stderr()
    }
  })

  it.effect.each(cases)(
    "gets a token that the cloud's own library verifies, but no 9 characters of the key: $provider (D58)",
    function* (one) {
      yield* installedPrograms(["python3", "gcore"])
      const search = leakSearch({ secret: one.secret })
      const tokens = yield* observe(one, "tokens")
      assert.strictEqual(tokens.stdout, "succeeded the signature is valid\n")
      assert.match(tokens.stderr, /^\S+\.{3}\S+ token 20\d\d-[^ ]+Z\n$/)
      assert.strictEqual(tokens.request, one.request)
      assert.isDefined(tokens.memory, tokens.dumped)
      for (const part of ["socket", "memory", "logs", "stdout", "stderr"] as const)
        assert.deepStrictEqual(search(tokens[part] ?? ""), {}, part)

      const stored = yield* observe(one, "as_stored")
      assert.strictEqual(stored.stdout, "rejected no such key\n")
      for (const part of ["socket", "memory"] as const)
        assert.isAbove(search(stored[part] ?? "")["secret"] ?? 0, 0, `${part} (control)`)
      assert.deepStrictEqual(search(stored.logs), {})
    },
    { timeout: 240_000 }
  )
})
