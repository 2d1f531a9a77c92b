import { execFile, spawnSync } from "node:child_process"
import { chmodSync, existsSync, lstatSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs"
import { request } from "node:http"
import { createServer } from "node:net"
import { join } from "node:path"
import { assert } from "@effect/vitest"
import { Effect, Exit, Layer, Option, Redacted, Scope } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import * as GatewayServer from "../../src/gateway/GatewayServer.ts"
import { fakeUpstream } from "../examples/FakeUpstream.ts"
import { databaseProxy } from "../support/database/DatabaseProxy.ts"
import { serverSettings } from "../support/database/freshDatabase.ts"
import { createdId } from "../support/http/Bodies.ts"
import { send } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const key = "sk-0123456789-0123456789-AbCd"
const bad = "sk-rejected-0123456789-0123456789"

const ask = (socketPath: string, method: string, path: string, body?: object) =>
  Effect.promise(
    () =>
      new Promise<{ status: number; text: string }>((resolve, reject) => {
        const headers = { "content-type": "application/json" }
        const sent = request({ socketPath, method, path, headers }, (response) => {
          let text = ""
          response.on("data", (part: Buffer) => (text += part.toString()))
          response.once("end", () => resolve({ status: response.statusCode ?? 0, text }))
        })
        sent.once("error", reject).end(body === undefined ? undefined : JSON.stringify(body))
      })
  )

/** A gateway's socket of the test's service, until the scope closes. */
const listening = (path: string) => Layer.build(Layer.fresh(GatewayServer.layer(serverSettings, path)))

const socketPath = Effect.map(temporaryDirectory, (directory) => join(directory, "gateway.sock"))

const own = { provider: "azure", endpoint: { shared: false } }

const keyring = generateKeyring(new Date())
const settings = <S extends object>(given: S) => ({ ...given, keyring: Option.some(Redacted.make(keyring)) })

layerLive(TestService.layerWith({ settings }))("the socket for gateways", (it) => {
  it.effect("is for the user and group of the process, replaces a stale one and goes when it stops", () =>
    Effect.gen(function* () {
      const path = yield* socketPath
      const stale = createServer()
      yield* Effect.promise(() => new Promise<void>((resolve) => void stale.listen(`${path}.live`, resolve)))
      // As after kill -9: the socket is there, and nobody listens.
      renameSync(`${path}.live`, path)
      yield* Effect.promise(() => new Promise<void>((resolve) => void stale.close(() => resolve())))
      assert.isTrue(lstatSync(path).isSocket(), "stale")
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* listening(path)
          assert.strictEqual(statSync(path).mode & 0o777, 0o660)
          assert.strictEqual((yield* ask(path, "GET", "/openapi.json")).status, 200)
          const again = yield* Effect.flip(Effect.scoped(listening(path)))
          assert.strictEqual(
            again.message,
            "BYOK_GATEWAY_SOCKET must be a socket of one instance: another one listens there."
          )
          assert.strictEqual((yield* ask(path, "GET", "/openapi.json")).status, 200, "the first goes on")
        })
      )
      assert.isFalse(existsSync(path))
    })
  )

  it.effect("is refused in one sentence where others could take its place, or something else is", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const open = join(directory, "open")
      mkdirSync(open)
      chmodSync(open, 0o777)
      writeFileSync(join(directory, "file"), "")
      for (const [path, why] of [
        [join(open, "s"), "in a folder that others cannot write to"],
        [join(directory, "none", "s"), "in a folder that exists"],
        [join(directory, "file"), "a socket or not exist: a file or link is there"]
      ] as const) {
        const { message } = yield* Effect.flip(Effect.scoped(listening(path)))
        assert.strictEqual(message, `BYOK_GATEWAY_SOCKET must be ${why}.`)
      }
      const { message } = yield* Effect.flip(Effect.scoped(listening(join(directory, "x".repeat(108)))))
      assert.match(message, /^BYOK_GATEWAY_SOCKET must have at most \d+ bytes\.$/)
    })
  )

  it.effect("has routes of its own: none is on the port, and none of the port's is on it (control)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const path = yield* socketPath
      yield* listening(path)
      for (const route of ["/v1/accounts", "/v1/routes"]) {
        assert.notStrictEqual((yield* ask(path, "GET", route)).status, 404)
        assert.strictEqual((yield* send(url, { path: route })).status, 404)
      }
      for (const route of ["/api/v1/byok", "/health/live", "/docs"]) {
        assert.strictEqual((yield* ask(path, "GET", route)).status, 404, route)
        assert.notStrictEqual((yield* send(url, { path: route })).status, 404, route)
      }
    })
  )

  it.effect("hands out keys one after the other, and what one socket learns another one knows", () =>
    Effect.gen(function* () {
      const { account_id, create } = yield* TestService.newTenant
      for (const one of [bad, key]) createdId(yield* create({ provider: "azure", key: one }))
      const [path, other] = [yield* socketPath, yield* socketPath]
      yield* listening(path)
      yield* listening(other)
      const route = { account_id, model: "a/model", targets: [own] }
      const opened = yield* ask(path, "POST", "/v1/routes", route)
      assert.strictEqual(opened.status, 201, opened.text)
      const { data } = JSON.parse(opened.text) as { data: { route: string; next: { key: string; attempt: number } } }
      assert.deepStrictEqual([data.next.key, data.next.attempt], [bad, 1])
      const attempts = `/v1/routes/${data.route}/attempts`
      assert.strictEqual((yield* ask(path, "POST", `${attempts}/2`, { status: 401 })).status, 409)
      assert.strictEqual((yield* ask(path, "POST", `${attempts}/1`, {})).status, 400)
      const first = yield* ask(path, "POST", `${attempts}/1`, { status: 401 })
      assert.deepStrictEqual(yield* ask(path, "POST", `${attempts}/1`, { status: 200 }), first, "the first counts")
      assert.match(first.text, /"outcome":"rejected","next":\{"attempt":2,"step":"own"/)
      assert.include(first.text, key)
      const last = yield* ask(path, "POST", `${attempts}/2`, { status: 200 })
      assert.strictEqual(last.text, '{"data":{"outcome":"succeeded","next":null,"retry_at":null}}')
      assert.deepStrictEqual(yield* ask(path, "POST", `${attempts}/2`, { status: 500 }), last)
      assert.strictEqual((yield* ask(path, "POST", `${attempts}/1`, { status: 401 })).status, 404)
      assert.strictEqual((yield* ask(path, "DELETE", `/v1/routes/${data.route}`)).status, 404)
      const nobody = { ...route, account_id: "00000000-0000-7000-8000-000000000000" }
      const unknown = yield* ask(path, "POST", "/v1/routes", nobody)
      assert.match(unknown.text, /"code":400.*"path":\["account_id"\],"message":"must be an account whose default/)
      const again = yield* ask(path, "POST", "/v1/routes", route)
      assert.include(again.text, `"key":"${key}"`)
      assert.notInclude(again.text, bad)
      assert.include(again.text, '"reason":"parked","cause":"rejected","until":"2')
    })
  )

  it.effect("manages accounts as the commands do, with an actor of its own in the audit log", () =>
    Effect.gen(function* () {
      const { sql } = yield* TestService
      const path = yield* socketPath
      yield* listening(path)
      const dataOf = ({ text }: { readonly text: string }) =>
        (JSON.parse(text) as { data: Record<string, string> }).data
      const {
        account_id,
        management_key = "",
        workspace_id
      } = dataOf(yield* ask(path, "POST", "/v1/accounts", { name: "a customer" }))
      const account = `/v1/accounts/${account_id}`
      const made = yield* TestService.send({
        path: "/api/v1/byok",
        headers: [["Authorization", `Bearer ${management_key}`]]
      })
      assert.strictEqual(made.status, 200)
      const { hash = "", key: issued } = dataOf(yield* ask(path, "POST", `${account}/api-keys`, { name: "k" }))
      assert.match(issued ?? "", /^byok_/)
      const imported = "a".repeat(64)
      const body = { name: "i", hash: imported, management: true }
      assert.strictEqual((yield* ask(path, "POST", `${account}/api-keys`, body)).status, 201)
      const again = { ...body, management: false }
      assert.strictEqual((yield* ask(path, "POST", `${account}/api-keys`, again)).status, 409)
      const workspace = dataOf(yield* ask(path, "POST", `${account}/workspaces`, { name: "w" }))
      assert.include((yield* ask(path, "GET", `${account}/workspaces`)).text, workspace_id ?? "none")
      const stranger = dataOf(yield* ask(path, "POST", "/v1/accounts", { name: "other" }))
      for (const foreign of [`workspaces/${workspace["workspace_id"]}`, `api-keys/${hash}`]) {
        assert.strictEqual(
          (yield* ask(path, "DELETE", `/v1/accounts/${stranger["account_id"]}/${foreign}`)).status,
          404
        )
        assert.strictEqual((yield* ask(path, "DELETE", `${account}/${foreign}`)).status, 200)
      }
      assert.include((yield* ask(path, "GET", `${account}/api-keys`)).text, hash)
      assert.include((yield* ask(path, "GET", "/v1/accounts")).text, account_id ?? "none")
      const misspelled = yield* ask(path, "GET", "/v1/accounts?aftr=1")
      assert.include(misspelled.text, '{"path":["aftr"],"message":"only after is a parameter of this list"}')
      assert.strictEqual((yield* ask(path, "DELETE", account)).status, 200)
      assert.strictEqual((yield* ask(path, "DELETE", account)).status, 404)
      const actors = yield* sql<{ actor: string }>`
        SELECT DISTINCT event->'actor'->>'kind' AS actor
        FROM audit_entries, json_array_elements(events) AS event WHERE account_id = ${account_id}`
      assert.deepStrictEqual(actors, [{ actor: "gateway" }])
    })
  )

  it.effect.each([
    ["gateway.py", "python3", "--version"],
    ["gateway.mjs", process.execPath, "--version"],
    ["gateway.sh", "sh", "-c", "jq --version"],
    ["gateway.go", "go", "version"]
  ] as const)("serves %s of 30 lines, whose keys fail one after the other", ([file, program, ...probe], context) =>
    Effect.gen(function* () {
      if (spawnSync(program, probe).status !== 0) return context.skip(`${program} is not installed`)
      const script = join(import.meta.dirname, "../../examples", file)
      assert.isAtMost(readFileSync(script, "utf8").trimEnd().split("\n").length, 30)
      const { account_id, create } = yield* TestService.newTenant
      const limited = "sk-limited-0123456789-0123456789"
      for (const one of [bad, limited, key]) createdId(yield* create({ provider: "openai", key: one }))
      const path = yield* socketPath
      yield* listening(path)
      const upstream = yield* fakeUpstream((given, response) => {
        if (given === key) return response.end("hello")
        if (given === limited) return response.writeHead(429, { "retry-after": "30" }).end()
        return response.writeHead(401).end(given)
      })
      const runIn = program === "go" ? ["run", script] : [script]
      const served = (...given: ReadonlyArray<string>) =>
        Effect.promise(
          () =>
            new Promise<string>((resolve) =>
              execFile(program, [...runIn, ...given], (error, stdout, stderr) =>
                resolve(`${stdout}|${stderr}${error === null ? "" : "failed"}`)
              )
            )
        )
      const toKeys = served(path, account_id, upstream.url)
      assert.strictEqual(yield* toKeys, "hello|sk-...6789 rejected\nsk-...6789 rate_limited\nsk-...AbCd succeeded\n")
      assert.deepStrictEqual(upstream.seen(), [bad, limited, key])
      assert.strictEqual(yield* toKeys, "hello|sk-...AbCd succeeded\n", "what failed is parked")
      assert.deepStrictEqual(upstream.seen(), [key])

      const closed = "http://127.0.0.1:9/"
      for (const [given, said] of [
        [[path, account_id, closed], /upstream_failed\n.*no key could serve the request/],
        [[`${path}.none`, account_id, closed], /gateway\.sock|answer/],
        [[path, account_id.replace(/^./, "x"), closed], /must be a UUID/],
        [[], /usage: .*SOCKET ACCOUNT/]
      ] as const) {
        const text = yield* served(...given)
        assert.match(text, said)
        assert.match(text, /^\|(.+\n){1,3}failed$/, "sentences on standard error, no stack, and a failure")
        assert.notInclude(text, key)
      }
    })
  )

  it.effect("answers as docs/gateway.md says", (context) =>
    Effect.gen(function* () {
      if (spawnSync("curl", ["--version"]).status !== 0) return context.skip("curl is not installed")
      const { url } = yield* TestService
      const path = yield* socketPath
      yield* listening(path)
      const page = readFileSync(join(import.meta.dirname, "../../docs/gateway.md"), "utf8")
      const known: Record<string, string> = {}
      let said = ""
      let commands = 0
      for (const [, name, , command, answer] of page.matchAll(
        /^\$ (?:([A-Z]+)=(\S+)|(curl (?:.*\\\n)*.*)\n([^$`]*))$/gm
      )) {
        if (name !== undefined) {
          const member = { ACCOUNT: "account_id", KEY: "management_key", ROUTE: "route" }[name] ?? assert.fail(name)
          known[name] = new RegExp(`"${member}":"([^"]+)"`).exec(said)?.[1] ?? assert.fail(`${member} in ${said}`)
          continue
        }
        const here = (command ?? "").replaceAll("run/gateway.sock", path).replaceAll("http://127.0.0.1:3000", url)
        said = yield* Effect.promise(
          () =>
            new Promise<string>((resolve) =>
              execFile("sh", ["-c", here], { env: { ...process.env, ...known } }, (_error, stdout) => resolve(stdout))
            )
        )
        let rest = said
        for (const part of (answer ?? "").replaceAll(/\n|019a(?=…)|5f0c(?=…)/g, "").split("…")) {
          assert.include(rest, part, `${command}: ${said}`)
          rest = rest.slice(rest.indexOf(part) + part.length)
        }
        commands += 1
      }
      assert.strictEqual(commands, 4)
    })
  )

  const nextIn = (text: string) =>
    (JSON.parse(text) as { data: { route: string; next: { key?: string; step: string } | null } }).data

  it.effect("is one of two processes that agree on cooldowns, and answers 503 without the database (Q30, E21)", () =>
    Effect.gen(function* () {
      const { databaseUrl } = yield* TestService
      const { account_id, create } = yield* TestService.newTenant
      for (const one of [bad, key]) createdId(yield* create({ provider: "azure", key: one }))
      const cut = yield* Scope.make()
      const { target } = yield* Scope.provide(databaseProxy(databaseUrl), cut)
      const proxied = new URL(databaseUrl)
      proxied.host = `127.0.0.1:${target.port}`
      proxied.searchParams.delete("host")
      const [path, other] = [yield* socketPath, yield* socketPath]
      const started = (BYOK_GATEWAY_SOCKET: string, DATABASE_URL: string) =>
        startService({ DATABASE_URL, BYOK_KEYRING: keyring, BYOK_GATEWAY_SOCKET })
      yield* Effect.all([started(path, databaseUrl), started(other, proxied.href)], { concurrency: 2 })

      const shared = { account_id, model: "a/model", targets: [{ provider: "azure" }] }
      const opened = (socket: string) => ask(socket, "POST", "/v1/routes", shared)
      const first = nextIn((yield* opened(path)).text)
      assert.strictEqual(first.next?.key, bad)
      assert.strictEqual(nextIn((yield* opened(other)).text).next?.key, bad, "control")
      yield* ask(path, "POST", `/v1/routes/${first.route}/attempts/1`, { status: 401 })
      const keyOnOther = Effect.map(opened(other), ({ text }) => nextIn(text).next?.key)
      yield* eventually("the other leaves out what is parked", keyOnOther, (found) => found === key)

      const [hash, unknown] = ["b".repeat(64), "c".repeat(64)]
      const account = `/v1/accounts/${account_id}`
      const managed = (socket: string) =>
        Effect.forEach(
          [
            ["POST", "/v1/accounts", { name: "n" }],
            ["GET", "/v1/accounts"],
            ["POST", `${account}/workspaces`, { name: "n" }],
            ["GET", `${account}/workspaces`],
            ["POST", `${account}/api-keys`, { name: "n" }],
            ["POST", `${account}/api-keys`, { name: "n", hash }],
            ["GET", `${account}/api-keys`],
            ["DELETE", `${account}/api-keys/${unknown}`],
            ["DELETE", `/v1/accounts/00000000-0000-7000-8000-000000000000`]
          ] as const,
          ([method, route, body]) => ask(socket, method, route, body),
          { concurrency: "unbounded" }
        )

      const ends = (socket: string, route: string) =>
        ask(socket, "POST", `/v1/routes/${route}/attempts/1`, { status: 500 })
      const [without, control] = [yield* opened(other), yield* opened(path)].map(({ text }) => nextIn(text).route)
      yield* Scope.close(cut, Exit.void)
      const refused = yield* opened(other)
      const reported = yield* ends(other, without ?? "")
      const unmanaged = yield* managed(other)
      for (const { status, text } of [refused, reported, ...unmanaged]) {
        assert.strictEqual(status, 503, text)
        assert.strictEqual(text, refused.text)
        assert.notInclude(text, "shared")
      }
      assert.strictEqual(nextIn((yield* ends(path, control ?? "")).text).next?.step, "shared", "control")
      const expected = [201, 200, 201, 200, 201, 201, 200, 404, 404]
      assert.deepStrictEqual(
        Array.from(yield* managed(path), ({ status }) => status),
        expected,
        "control"
      )
    })
  )

  it.effect("gives a trial back when the client leaves, and to the next process after kill -9 (Q24, E17)", () =>
    Effect.gen(function* () {
      const { databaseUrl, sql } = yield* TestService
      const { account_id, create } = yield* TestService.newTenant
      const id = createdId(yield* create({ provider: "azure", key }))
      const path = yield* socketPath
      const opened = Effect.map(
        ask(path, "POST", "/v1/routes", { account_id, model: "a/model", targets: [own] }),
        ({ text }) => nextIn(text)
      )
      const start = startService({ DATABASE_URL: databaseUrl, BYOK_KEYRING: keyring, BYOK_GATEWAY_SOCKET: path })
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* listening(path)
          const { route } = yield* opened
          yield* ask(path, "POST", `/v1/routes/${route}/attempts/1`, { status: 401 })
          const end = sql`UPDATE credential_parkings SET until = now() - interval '1 second'
            WHERE credential_id = ${id} RETURNING 1`
          yield* eventually("the parking is stored", end, (rows) => rows.length === 1)
        })
      )
      yield* Effect.scoped(
        Effect.gen(function* () {
          const killed = yield* start
          const { next, route } = yield* opened
          assert.strictEqual(next?.key, key)
          assert.isNull((yield* opened).next, "one trial at a time (control)")
          assert.strictEqual((yield* ask(path, "DELETE", `/v1/routes/${route}`)).status, 200)
          assert.strictEqual((yield* opened).next?.key, key, "given back")
          assert.isNull((yield* opened).next, "on trial again (control)")
          yield* killed.signal("SIGKILL")
          yield* killed.ended
        })
      )
      yield* start
      assert.strictEqual((yield* opened).next?.key, key)
    })
  )

  it.effect("is replaced by the next start after kill -9, which leaves no lease and no trial", () =>
    Effect.gen(function* () {
      const { account_id, create } = yield* TestService.newTenant
      createdId(yield* create({ provider: "azure", key }))
      const { databaseUrl } = yield* TestService
      const path = yield* socketPath
      const variables = { DATABASE_URL: databaseUrl, BYOK_KEYRING: keyring, BYOK_GATEWAY_SOCKET: path }
      const route = { account_id, model: "a/model", targets: [own] }
      const opened = yield* Effect.scoped(
        Effect.gen(function* () {
          const killed = yield* startService(variables)
          const answer = yield* ask(path, "POST", "/v1/routes", route)
          assert.include(answer.text, key)
          yield* killed.signal("SIGKILL")
          yield* killed.ended
          return JSON.parse(answer.text) as { data: { route: string } }
        })
      )
      assert.isTrue(existsSync(path), "left behind")
      yield* startService(variables)
      const gone = `/v1/routes/${opened.data.route}/attempts/1`
      assert.strictEqual((yield* ask(path, "POST", gone, { status: 401 })).status, 404)
      assert.include((yield* ask(path, "POST", "/v1/routes", route)).text, key)
    })
  )
})
