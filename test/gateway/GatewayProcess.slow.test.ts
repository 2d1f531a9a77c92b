import { execFile, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, readFileSync } from "node:fs"
import type { ServerResponse } from "node:http"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { Effect, Exit, Option, Redacted, Scope } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { fakeUpstream } from "../examples/FakeUpstream.ts"
import { databaseProxy } from "../support/database/DatabaseProxy.ts"
import { createdId } from "../support/http/Bodies.ts"
import { create as createAs } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"
import { serviceAccount } from "../support/keys/cloudKeys.ts"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { ask, listening, openSocket, own, socketPath } from "./socket.ts"

const key = "sk-0123456789-0123456789-AbCd"
const bad = "sk-rejected-0123456789-0123456789"

const keyring = generateKeyring(new Date())
const settings = <S extends object>(given: S) => ({ ...given, keyring: Option.some(Redacted.make(keyring)) })

const nextIn = (text: string) =>
  (JSON.parse(text) as { data: { next: { attempt: string; key?: string; step: string } | null } }).data

layerLive(TestService.layerWith({ settings }))("the socket for gateways, with other processes", (it) => {
  it.effect.each([
    ["gateway.py", "python3"],
    ["gateway.mjs", process.execPath],
    ["gateway.sh", "sh", "curl", "jq"],
    ["gateway.go", "go"]
  ] as const)(
    "serves the example %s, of 40 lines, which streams and says why no key served, showing no key (Q22)",
    function* ([file, program, ...others]) {
      if (program !== process.execPath) yield* installedPrograms([program, ...others])
      const script = join(import.meta.dirname, "../../examples", file)
      assert.isAtMost(readFileSync(script, "utf8").trimEnd().split("\n").length, 40)
      const { account_id, create, update } = yield* TestService.newTenant
      const spent = "sk-spent-0123456789-0123456789"
      const ids = yield* Effect.forEach([bad, spent, key], (one) =>
        Effect.map(create({ provider: "openai", key: one }), createdId)
      )
      const path = yield* openSocket
      let answer = (response: ServerResponse): unknown => response.end("hello\n")
      const upstream = yield* fakeUpstream((given, response) => {
        if (given === key) return answer(response)
        // Like OpenAI, some of whose errors have no type, and Google, whose errors have details.
        const error =
          given === spent
            ? { code: "insufficient_quota", type: null, details: null }
            : { code: 400, message: given, details: [{ reason: "API_KEY_INVALID" }, {}] }
        return response.writeHead(given === spent ? 429 : 400, { "retry-after": "30" }).end(JSON.stringify({ error }))
      })
      const runIn = program === "go" ? ["run", script] : [script]
      const running = (...given: ReadonlyArray<string>) => spawn(program, [...runIn, ...given])
      const served = (...given: ReadonlyArray<string>) =>
        Effect.promise(async () => {
          const child = running(...given)
          const ended = once(child, "close")
          const said = await Promise.all([text(child.stdout), text(child.stderr)])
          const [code] = (await ended) as [number]
          return `${said.join("|")}${code === 0 ? "" : "failed"}`
        })
      const toKeys = served(path, account_id, upstream.url)
      const outcomes = "sk-...6789 rejected\nsk-...6789 quota_exhausted\nsk-...AbCd succeeded\n"
      assert.strictEqual(yield* toKeys, `hello\n|${outcomes}`)
      assert.deepStrictEqual(upstream.seen(), [bad, spent, key])
      assert.strictEqual(yield* toKeys, "hello\n|sk-...AbCd succeeded\n", "what failed is parked")
      assert.deepStrictEqual(upstream.seen(), [key])

      const refusal = `{"error":{"message":"no such model for KEY","code":null,"status":400}}\n`
      answer = (response) => response.writeHead(400).end(refusal.replace("KEY", key))
      const shown = refusal.replace("KEY", "<key>")
      assert.match(
        yield* toKeys,
        new RegExp(`^${shown.replace(/[{}]/g, "\\$&")}\\|sk-...AbCd request_refused\n(exit status 1\n)?failed$`)
      )

      answer = (response) => response.writeHead(404).end(refusal.replace("KEY", key))
      const unknown = yield* toKeys
      assert.isTrue(unknown.startsWith(`${shown}|sk-...AbCd not_served\n`) && unknown.endsWith("failed"), unknown)

      answer = (response) =>
        response.end('event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n')
      assert.match(yield* toKeys, /^\|sk-...AbCd upstream_failed\n.*no key could serve the request/, "after 200")

      let finish = () => {}
      answer = (response) => {
        response.write(`data: ${key.slice(0, 9)}`)
        setTimeout(() => response.write(`${key.slice(9)}\n`), 50)
        finish = () => void response.end("data: 2\n")
      }
      const streaming = running(path, account_id, upstream.url)
      const [first] = (yield* Effect.promise(() => once(streaming.stdout, "data"))) as [Buffer]
      assert.strictEqual(first.toString(), "data: <key>\n", "before the upstream has ended")
      finish()
      assert.strictEqual(yield* Effect.promise(() => text(streaming.stdout)), "data: 2\n")

      const closed = "http://127.0.0.1:9/"
      yield* update(ids[1] ?? "", { disabled: true })
      const unserved = yield* served(path, account_id, closed)
      assert.match(
        unserved,
        /^\|(curl: .*\n)?sk-...AbCd upstream_failed\n.*no key could serve the request: (\{.*\})\n(exit status 1\n)?failed$/
      )
      const reasons = JSON.parse(/request: (\{.*\})\n/.exec(unserved)?.[1] ?? "{}") as Record<
        string,
        string | ReadonlyArray<{ reason: string }>
      >
      const words = Object.entries(reasons).map(([id, why]) => [id, typeof why === "string" ? why : why[0]?.reason])
      assert.deepStrictEqual(
        Object.fromEntries(words),
        Object.fromEntries(ids.map((id, index) => [id, ["parked", "disabled", "upstream_failed"][index]])),
        "the outcome of the key that was tried, and why the others were not"
      )
      for (const [given, said] of [
        [[`${path}.none`, account_id, closed], /gateway\.sock|answer/],
        [[path, account_id.replace(/^./, "x"), closed], /must be a UUID/],
        [[], /usage: .*SOCKET ACCOUNT/]
      ] as const) {
        const sentences = yield* served(...given)
        assert.match(sentences, said)
        assert.match(sentences, /^\|(.+\n){1,3}failed$/, "sentences on standard error, no stack, and a failure")
        assert.notInclude(sentences, key)
      }
    }
  )

  it.effect("answers the curl commands of docs/gateway.md as shown there", function* () {
    const { url } = yield* TestService
    const path = yield* openSocket
    const page = readFileSync(join(import.meta.dirname, "../../docs/gateway.md"), "utf8")
    const account = JSON.stringify({ ...serviceAccount, project_id: "a-project", region: "us-east5" })
    const known: Record<string, string> = {}
    let said = ""
    let commands = 0
    for (const [, name, , command, answer] of page.matchAll(
      /^\$ (?:([A-Z]+)=(\S+)|(curl (?:.*\\\n)*.*)\n([^$`]*))$/gm
    )) {
      if (name !== undefined) {
        const member =
          { ACCOUNT: "account_id", KEY: "management_key", ATTEMPT: "attempt", CREDENTIAL: "id" }[name] ??
          assert.fail(name)
        known[name] = new RegExp(`"${member}":"([^"]+)"`).exec(said)?.[1] ?? assert.fail(`${member} in ${said}`)
        if (name === "KEY") yield* createAs(url, known[name], { provider: "google-vertex", key: account })
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
      for (const part of (answer ?? "").replaceAll(/\n|019a(?=…)|aBcD(?=…)/g, "").split("…")) {
        assert.include(rest, part, `${command}: ${said}`)
        rest = rest.slice(rest.indexOf(part) + part.length)
      }
      commands += 1
    }
    assert.strictEqual(commands, 8)
  })

  it.effect("answers 503 in a process that lost its database, while another process serves (E21)", function* () {
    const { databaseUrl } = yield* TestService
    const { account_id, create } = yield* TestService.newTenant
    createdId(yield* create({ provider: "azure", key }))
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
    const first = (socket: string) => ask(socket, "POST", "/v1/attempts", shared)

    const goOn = (socket: string, attempt: string, status: number) =>
      ask(socket, "POST", "/v1/attempts", { ...shared, after: { attempt, status } })
    const attemptIn = ({ text }: { readonly text: string }) => nextIn(text).next?.attempt ?? assert.fail("no attempt")
    const [without, control] = [attemptIn(yield* first(other)), attemptIn(yield* first(path))]
    const account = `/v1/accounts/${account_id}`
    const [hash, unknown] = ["b".repeat(64), "c".repeat(64)]
    const managed = (socket: string) =>
      Effect.forEach(
        [
          ["POST", "/v1/accounts", { name: "n" }],
          ["POST", `${account}/workspaces`, { name: "n" }],
          ["POST", `${account}/api-keys`, { name: "n" }],
          ["POST", `${account}/api-keys`, { name: "n", hash }],
          ["GET", "/v1/accounts"],
          ["GET", `${account}/workspaces`],
          ["GET", `${account}/api-keys`],
          ["DELETE", `${account}/api-keys/${unknown}`],
          ["DELETE", `/v1/accounts/00000000-0000-7000-8000-000000000000`]
        ] as const,
        ([method, route, body]) => Effect.map(ask(socket, method, route, body), ({ status }) => status),
        { concurrency: "unbounded" }
      )

    yield* Scope.close(cut, Exit.void)
    const refused = yield* first(other)
    const reported = yield* goOn(other, without, 500)
    for (const { status, text } of [refused, reported]) {
      assert.strictEqual(status, 503, text)
      assert.notInclude(text, "shared")
    }
    assert.include((yield* goOn(other, without, 200)).text, '"outcome":"succeeded"', "asks no database")
    assert.strictEqual(nextIn((yield* goOn(path, control, 500)).text).next?.step, "shared", "control")

    const statuses = yield* managed(other)
    // What was sent on a connection that broke may have been stored: 500.
    for (const status of statuses.slice(0, 4)) assert.include([500, 503], status)
    assert.deepStrictEqual(statuses.slice(4), [503, 503, 503, 503, 503])
    assert.deepStrictEqual(yield* managed(path), [201, 201, 201, 201, 200, 200, 200, 404, 404], "control")
  })

  it.effect(
    "frees a key on trial when it is abandoned; kill -9 leaves no trial, and texts that are taken (Q24)",
    function* () {
      const { databaseUrl, sql } = yield* TestService
      const { account_id, create } = yield* TestService.newTenant
      const id = createdId(yield* create({ provider: "azure", key }))
      const path = yield* socketPath
      const next = (members: object = {}) =>
        Effect.map(
          ask(path, "POST", "/v1/attempts", { account_id, model: "a/model", targets: [own], ...members }),
          ({ text }) => nextIn(text)
        )
      const report = (after: object) => next({ after })
      const start = startService({ DATABASE_URL: databaseUrl, BYOK_KEYRING: keyring, BYOK_GATEWAY_SOCKET: path })
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* listening(path)
          yield* report({ attempt: (yield* next()).next?.attempt, status: 401 })
          const end = sql`UPDATE credential_parkings SET until = now() - interval '1 second'
          WHERE credential_id = ${id} RETURNING 1`
          yield* eventually("the parking is stored", end, (rows) => rows.length === 1)
        })
      )
      const left = yield* Effect.scoped(
        Effect.gen(function* () {
          const killed = yield* start
          const { next: tried } = yield* next()
          assert.strictEqual(tried?.key, key)
          assert.isNull((yield* next()).next, "one trial at a time (control)")
          yield* report({ attempt: tried?.attempt, abandoned: true })
          const again = yield* next()
          assert.strictEqual(again.next?.key, key, "given back")
          assert.isNull((yield* next()).next, "on trial again (control)")
          yield* killed.signal("SIGKILL")
          yield* killed.ended
          return again.next?.attempt
        })
      )
      assert.isTrue(existsSync(path), "left behind")
      yield* start
      assert.strictEqual((yield* next()).next?.key, key)
      const after = yield* ask(path, "POST", "/v1/reports", { reports: [{ attempt: left, status: 401 }] })
      assert.include(after.text, '"outcome":"rejected"')
      assert.isNull((yield* next()).next, "parked by the report of an attempt from before")
    }
  )
})
