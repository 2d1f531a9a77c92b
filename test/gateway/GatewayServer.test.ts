import {
  chmodSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { randomUUID } from "node:crypto"
import { createServer, Server } from "node:net"
import { join } from "node:path"
import { Effect, Redacted } from "effect"
import { hashApiKey } from "../../src/runtime/ApiKey.ts"
import { createdId, unknownId } from "../support/http/Bodies.ts"
import { create, get, type Header, json, render, send } from "../support/http/HttpProbe.ts"
import type { Issue } from "../support/http/Refusal.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"
import { open } from "../support/http/RawConnection.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { ask, listening, openSocket, own, socketPath } from "./socket.ts"

const close: Header = ["Connection", "close"]
const key = "sk-0123456789-0123456789-AbCd"
const bad = "sk-rejected-0123456789-0123456789"

const refusedAs = ({ status, text }: { readonly status: number; readonly text: string }, message: string) =>
  assert.deepStrictEqual([status, JSON.parse(text)], [409, { error: { code: 409, message } }])

const dataOf = ({ text }: { readonly text: string }) => (JSON.parse(text) as { data: Record<string, string> }).data

layerLive(TestService.layer)("the socket for gateways", (it) => {
  it.effect("answers pipelined requests in order, though Node ends a body only after its answer", function* () {
    const connection = yield* open(yield* openSocket)
    const members = ["one", "two", "three", "last"]
    const requests = members.map((member) =>
      render({
        method: "POST",
        path: "/v1/attempts",
        headers: member === "last" ? [json, close] : [json],
        body: JSON.stringify({ [member]: 1 })
      })
    )
    yield* connection.write(Buffer.concat(requests))
    for (const member of members) {
      const { body, headers, status } = yield* connection.answer
      assert.deepStrictEqual([status, headers["connection"]], [400, member === "last" ? "close" : "keep-alive"])
      assert.include(body, `"${member}"`)
    }
    yield* connection.closed
  })

  it.effect(
    "admits the user and group of the process, replaces a stale socket and is removed on shutdown",
    function* () {
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
    }
  )

  it.effect("has mode 0660 from the moment it listens, whatever the umask", function* () {
    const path = yield* socketPath
    const listen = Reflect.get(Server.prototype, "listen")
    const before = process.umask(0)
    const modes: Array<number> = []
    Server.prototype.listen = function (this: Server, ...given: ReadonlyArray<unknown>) {
      const server = Reflect.apply(listen, this, given) as Server
      modes.push(statSync(path).mode & 0o777)
      return server
    }
    yield* Effect.scoped(listening(path)).pipe(
      Effect.ensuring(
        Effect.sync(() => {
          Server.prototype.listen = listen
          process.umask(before)
        })
      )
    )
    assert.deepStrictEqual(modes, [0o660])
  })

  it.effect("is refused if its path is taken or too long, or its folder missing or writable by others", function* () {
    const directory = yield* temporaryDirectory
    const open = join(directory, "open")
    mkdirSync(open)
    chmodSync(open, 0o777)
    writeFileSync(join(directory, "file"), "")
    mkdirSync(join(open, "own"), { mode: 0o700 })
    const shared = join(directory, "shared")
    mkdirSync(shared)
    chmodSync(shared, 0o775)
    symlinkSync(join(open, "own"), join(directory, "link"))
    const closedBy = (by: string, folder: string) =>
      `in a folder that, like each above it, only this user or root can write to: ${by} can write to ${folder}`
    const closed = closedBy("every user", open)
    const group = closedBy(`group ${statSync(shared).gid}`, shared)
    for (const [path, why] of [
      [join(open, "s"), closed],
      [join(open, "own", "s"), closed],
      [join(directory, "link", "s"), closed],
      [join(shared, "s"), group],
      [join(directory, "none", "s"), "in a folder that exists"],
      [join(directory, "file"), "a socket or not exist: a file or link is there"]
    ] as const) {
      const { message } = yield* Effect.flip(Effect.scoped(listening(path)))
      assert.strictEqual(message, `BYOK_GATEWAY_SOCKET must be ${why}.`)
    }
    chmodSync(open, 0o1777)
    yield* Effect.scoped(listening(join(open, "own", "s")))
    symlinkSync(join(open, "own"), join(open, "link"))
    yield* Effect.scoped(listening(join(open, "link", "s")))
    if (process.getuid?.() === 0) {
      lchownSync(join(open, "link"), 65534, 65534)
      const byLink = yield* Effect.flip(Effect.scoped(listening(join(open, "link", "s"))))
      const owned = closedBy("user 65534", join(open, "link"))
      assert.strictEqual(byLink.message, `BYOK_GATEWAY_SOCKET must be ${owned}.`)
    }
    const { message } = yield* Effect.flip(Effect.scoped(listening(join(directory, "x".repeat(108)))))
    assert.match(message, /^BYOK_GATEWAY_SOCKET must have at most \d+ bytes\.$/)
  })

  it.effect("shares no path with the port of the API but /health/ready (control)", function* () {
    const { url } = yield* TestService
    const path = yield* openSocket
    for (const route of ["/v1/accounts", "/v1/attempts"]) {
      assert.notStrictEqual((yield* ask(path, "GET", route)).status, 404)
      assert.strictEqual((yield* send(url, { path: route })).status, 404)
    }
    for (const route of ["/api/v1/byok", "/health/live", "/docs"]) {
      assert.strictEqual((yield* ask(path, "GET", route)).status, 404, route)
      assert.notStrictEqual((yield* send(url, { path: route })).status, 404, route)
    }
  })

  it.effect("reports readiness like the port of the API: 200, or 503 with the same body", function* () {
    const { sql, url } = yield* TestService
    const path = yield* openSocket
    const turnsTo = (status: number) =>
      eventually(
        `it is ${status}`,
        Effect.all([ask(path, "GET", "/health/ready"), send(url, { path: "/health/ready" })]),
        ([own, port]) => own.status === status && own.text === port.body
      )
    yield* turnsTo(200)
    yield* Effect.acquireUseRelease(
      Effect.orDie(sql`UPDATE effect_sql_migrations SET migration_id = -migration_id`),
      () => turnsTo(503),
      () => Effect.orDie(sql`UPDATE effect_sql_migrations SET migration_id = -migration_id`)
    )
    yield* turnsTo(200)
  })

  it.effect("takes the account and its permissions from the client's API key or its hash", function* () {
    const { newTenant, url } = yield* TestService
    const tenant = yield* newTenant
    const stranger = yield* newTenant
    const api_key = yield* tenant.ordinaryKey
    const api_key_hash = hashApiKey(Redacted.make(api_key))
    const restricted = { provider: "azure", key, allowed_api_key_hashes: [api_key_hash] }
    createdId(yield* tenant.create(restricted))
    const path = yield* openSocket
    const { account_id, workspace_id } = tenant
    const open = (named: object) =>
      ask(path, "POST", "/v1/attempts", { model: "a/model", targets: [own], explain: true, ...named })
    for (const named of [{ api_key }, { api_key_hash }, { api_key, workspace_id }, { account_id, api_key_hash }]) {
      const { status, text } = yield* open(named)
      assert.strictEqual(status, 200, text)
      assert.include(text, `"key":"${key}"`)
      assert.notInclude(text, api_key)
    }
    assert.include((yield* open({ account_id })).text, '"reason":"api_key_not_allowed"', "control")
    for (const foreign of [{ api_key, workspace_id: stranger.workspace_id }]) {
      assert.include((yield* open(foreign)).text, '"path":["workspace_id"]')
    }
    for (const named of [{}, { account_id, api_key }, { api_key, api_key_hash }]) {
      const { status, text } = yield* open(named)
      assert.strictEqual(status, 400)
      assert.include(text, "must name the account by account_id, with or without api_key_hash, or by api_key")
      assert.notInclude(text, api_key)
    }
    const viewer = yield* ask(path, "POST", `/v1/accounts/${account_id}/api-keys`, { name: "v", role: "viewer" })
    for (const sent of [tenant.management_key, dataOf(viewer)["key"] ?? ""]) {
      const hashed = { api_key_hash: hashApiKey(Redacted.make(sent)) }
      for (const named of [{ api_key: sent }, hashed, { account_id, ...hashed }]) {
        const { status, text } = yield* open(named)
        assert.strictEqual(status, 403, text)
        assert.include(text, '"message":"This API key cannot route requests"')
      }
    }
    yield* ask(path, "DELETE", `/v1/accounts/${account_id}/api-keys/${api_key_hash}`)
    const refused = yield* get(url, api_key, account_id)
    const ofStranger = [yield* stranger.ordinaryKey, stranger.management_key]
    for (const named of [
      ...[{ api_key }, { api_key_hash }, { api_key: "byok_ak_unknown" }, { api_key: "" }],
      ...[api_key, ...ofStranger, "byok_ak_unknown"].map((sent) => ({
        account_id,
        api_key_hash: hashApiKey(Redacted.make(sent))
      }))
    ]) {
      const { status, text } = yield* open(named)
      assert.deepStrictEqual([status, text], [401, refused.body], JSON.stringify(named))
    }
    assert.strictEqual((yield* open({ api_key: yield* tenant.ordinaryKey })).status, 200, "control")
  })

  it.effect("tries a requested credential alone, even a parked one, but no disabled or leaked one", function* () {
    const { newTenant, sql } = yield* TestService
    const { account_id, create, update } = yield* newTenant
    const credential_id = createdId(yield* create({ provider: "azure", key }))
    createdId(yield* create({ provider: "azure", key: bad }))
    const path = yield* openSocket
    const route = { account_id, model: "a/model", targets: [{ provider: "azure" }], explain: true }
    const open = (asked: object) =>
      Effect.map(ask(path, "POST", "/v1/attempts", { ...route, ...asked }), ({ status, text }) => {
        assert.strictEqual(status, 200, text)
        type Next = { readonly attempt: string; readonly key?: string } | null
        return { text, ...(JSON.parse(text) as { data: { next: Next } }).data }
      })
    const alone = { credential_id, targets: [{ provider: "azure" }, { provider: "openai" }] }
    const tested = (said: object) =>
      Effect.flatMap(open(alone), ({ next }) => {
        assert.strictEqual(next?.key, key)
        return open({ ...alone, after: { attempt: next?.attempt, ...said } })
      })
    for (const [said, outcome] of [
      [{ status: 401 }, "rejected"],
      [{ status: 401 }, "rejected"],
      [{ status: 429, body: '{"error":{"code":"insufficient_quota"}}' }, "quota_exhausted"],
      [{ status: 0 }, "upstream_failed"],
      [{ abandoned: true }, "abandoned"]
    ] as const) {
      const { text } = yield* tested(said)
      assert.include(text, `"outcome":"${outcome}","next":null`, "no other key, and no shared capacity")
    }
    assert.strictEqual((yield* open({})).next?.key, bad, "control: it is parked for the others")
    yield* tested({ status: 200 })
    assert.strictEqual((yield* open({})).next?.key, key, "the success counts")
    yield* update(credential_id, { disabled: true })
    const off = yield* open(alone)
    assert.isNull(off.next)
    assert.include(off.text, '"exclusions":[{"reason":"disabled"}]')
    yield* update(credential_id, { disabled: false })
    yield* sql`
        INSERT INTO credential_parkings (account_id, credential_id, model, key_version, epoch, cause, strikes, parked_at)
        VALUES (${account_id}, ${credential_id}, '', 1, 0, 'leaked', 0, now())
        ON CONFLICT (account_id, credential_id, model) DO UPDATE SET cause = 'leaked', until = NULL`
    yield* sql`UPDATE pools SET health = health + 1 WHERE account_id = ${account_id}`
    const leaked = yield* open(alone)
    assert.isNull(leaked.next)
    assert.include(leaked.text, '"cause":"leaked"')
    const stranger = yield* newTenant
    const foreign = createdId(yield* stranger.create({ provider: "azure", key }))
    for (const named of [{ credential_id: foreign }, { ...alone, targets: [{ provider: "openai" }] }]) {
      const { status, text } = yield* ask(path, "POST", "/v1/attempts", { ...route, ...named })
      assert.strictEqual(status, 400)
      assert.include(text, '"path":["credential_id"],"message":"must be a credential of the workspace, and ')
    }
  })

  it.effect("refuses unknown members at every depth, and names them (Q31)", function* () {
    const { account_id, create } = yield* TestService.newTenant
    createdId(yield* create({ provider: "azure", key }))
    const path = yield* openSocket
    const route = { account_id, model: "a/model", targets: [own] }
    const refusals: ReadonlyArray<readonly [where: string, body: object, ...path: ReadonlyArray<string | number>]> = [
      ["attempts", { ...route, zdr: true }, "zdr"],
      ["attempts", { ...route, requires_ZDR: true }, "requires_ZDR"],
      ["attempts", { ...route, targets: [{ provider: "azure", shared: false }] }, "targets", 0, "shared"],
      [
        "attempts",
        { ...route, targets: [{ ...own, endpoint: { Shared: false } }] },
        "targets",
        0,
        "endpoint",
        "Shared"
      ],
      ["attempts", { ...route, after: { attempt: "none", status: 429, codes: [] } }, "after", "codes"],
      ["reports", { reports: [], report: 1 }, "report"],
      ["accounts", { name: "a customer", names: 1 }, "names"]
    ]
    for (const [where, body, ...named] of refusals) {
      const { status, text } = yield* ask(path, "POST", `/v1/${where}`, body)
      const [issue, other] = (JSON.parse(text) as { error: { metadata: { issues: ReadonlyArray<Issue> } } }).error
        .metadata.issues
      assert.deepStrictEqual([status, issue?.path, other], [400, named, undefined], text)
      assert.match(issue?.message ?? "", /^unknown member; (known: |the nearest is )/)
    }
    assert.strictEqual((yield* ask(path, "POST", "/v1/attempts", route)).status, 200, "control")
  })

  it.effect("creates one account for all repetitions of a request with an idempotency key", function* () {
    const { sql, url } = yield* TestService
    const path = yield* openSocket
    const named = (name: string, key: string) => ask(path, "POST", "/v1/accounts", { name }, { "Idempotency-Key": key })
    const idempotency_key = randomUUID()
    const together = yield* Effect.all(
      Array.from({ length: 8 }, () => named("once", idempotency_key)),
      {
        concurrency: "unbounded"
      }
    )
    const again = yield* named("once", idempotency_key)
    const { account_id = "", workspace_id } = dataOf(again)
    for (const answer of [...together, again]) {
      assert.strictEqual(answer.status, 201, answer.text)
      const made = dataOf(answer)
      assert.deepStrictEqual([made["account_id"], made["workspace_id"]], [account_id, workspace_id])
      // Every answer has a working key: a client that repeats has not seen the first one.
      createdId(yield* create(url, made["management_key"] ?? "", { provider: "azure", key }))
    }
    assert.strictEqual(together.filter(({ replayed }) => !replayed).length, 1)
    assert.isTrue(again.replayed)
    const [counted] = yield* sql<{ accounts: number; events: number }>`
        SELECT (SELECT count(*)::int FROM accounts WHERE name = 'once') AS accounts,
          (SELECT count(*)::int FROM audit_entries, json_array_elements(events) AS event
            WHERE event->>'account_id' = ${account_id} AND event->>'action' = 'account.create') AS events`
    assert.deepStrictEqual(counted, { accounts: 1, events: 1 })

    refusedAs(yield* named("another", idempotency_key), "Idempotency key reused with another request")
    assert.notStrictEqual(dataOf(yield* named("once", randomUUID()))["account_id"], account_id, "control")
    assert.include((yield* named("once", "a b")).text, '"path":["idempotency-key"]')
    assert.strictEqual((yield* ask(path, "DELETE", `/v1/accounts/${account_id}`)).status, 200)
    refusedAs(yield* named("once", idempotency_key), "The account of this request was deleted")
  })

  it.effect("manages accounts like the command line, with the actor gateway in the audit log", function* () {
    const { sql } = yield* TestService
    const path = yield* openSocket
    const made = yield* ask(path, "POST", "/v1/accounts", { name: "a customer" })
    assert.isFalse(made.replayed)
    const { account_id, management_key = "", workspace_id } = dataOf(made)
    const account = `/v1/accounts/${account_id}`
    const { url } = yield* TestService
    createdId(yield* create(url, management_key, { provider: "azure", key }))
    refusedAs(
      yield* ask(path, "DELETE", `${account}/workspaces/${workspace_id}`),
      "The default workspace has credentials: make another one the default with byok workspace default"
    )
    const { hash = "", key: issued } = dataOf(yield* ask(path, "POST", `${account}/api-keys`, { name: "k" }))
    assert.match(issued ?? "", /^byok_/)
    const imported = "a".repeat(64)
    const body = { name: "i", hash: imported, role: "management" }
    assert.strictEqual((yield* ask(path, "POST", `${account}/api-keys`, body)).status, 201)
    const owner = yield* ask(path, "POST", `${account}/api-keys`, { name: "o", role: "owner" })
    assert.include(owner.text, '{"path":["role"],"message":"must be management, viewer or ordinary"}')
    const viewer = dataOf(yield* ask(path, "POST", `${account}/api-keys`, { name: "v", role: "viewer" }))
    assert.deepInclude(viewer, { role: "viewer" })
    assert.strictEqual((yield* get(url, viewer["key"] ?? "", unknownId)).status, 404)
    const again = { ...body, role: "ordinary" }
    refusedAs(yield* ask(path, "POST", `${account}/api-keys`, again), "An API key with this hash exists already")
    const workspace = dataOf(yield* ask(path, "POST", `${account}/workspaces`, { name: "w" }))
    assert.include((yield* ask(path, "GET", `${account}/workspaces`)).text, workspace_id ?? "none")
    const stranger = dataOf(yield* ask(path, "POST", "/v1/accounts", { name: "other" }))
    for (const foreign of [`workspaces/${workspace["workspace_id"]}`, `api-keys/${hash}`]) {
      assert.strictEqual((yield* ask(path, "DELETE", `/v1/accounts/${stranger["account_id"]}/${foreign}`)).status, 404)
      assert.strictEqual((yield* ask(path, "DELETE", `${account}/${foreign}`)).status, 200)
    }
    assert.include((yield* ask(path, "GET", `${account}/api-keys`)).text, hash)
    assert.include((yield* ask(path, "GET", "/v1/accounts")).text, account_id ?? "none")
    const misspelled = yield* ask(path, "GET", "/v1/accounts?aftr=1")
    assert.include(misspelled.text, '{"path":["aftr"],"message":"only after is a parameter of this list"}')
    assert.strictEqual((yield* withoutTable("links", ask(path, "DELETE", account))).status, 500)
    assert.strictEqual((yield* ask(path, "DELETE", account)).status, 200)
    assert.strictEqual((yield* ask(path, "DELETE", account)).status, 404)
    const actors = yield* sql<{ actor: string }>`
        SELECT DISTINCT event->'actor'->>'kind' AS actor
        FROM audit_entries, json_array_elements(events) AS event
        WHERE account_id = ${account_id} AND event->>'action' <> 'credential.create'`
    assert.deepStrictEqual(actors, [{ actor: "gateway" }])
  })

  it.effect("creates, lists and revokes links for the owners of keys", function* () {
    const { newTenant } = yield* TestService
    const tenant = yield* newTenant
    const path = yield* openSocket
    const links = `/v1/accounts/${tenant.account_id}/links`
    const made = yield* ask(path, "POST", links, { purpose: "manage" })
    assert.strictEqual(made.status, 201, made.text)
    const { data } = JSON.parse(made.text) as { data: { link_id: string; url: string; expires_at: string } }
    assert.match(data.url, /^http:\/\/127\.0\.0\.1:\d+\/keys#byok_ln_\w{49}$/)
    const listed = yield* ask(path, "GET", links)
    assert.include(listed.text, data.link_id)
    assert.notInclude(listed.text, "byok_ln_")
    assert.notInclude(listed.text, "public_key")
    assert.strictEqual((yield* ask(path, "DELETE", `${links}/${data.link_id}`)).status, 200)
    assert.deepStrictEqual(JSON.parse((yield* ask(path, "GET", links)).text), { data: [] })
    const statuses = yield* Effect.forEach(
      [
        ask(path, "DELETE", `${links}/${tenant.account_id}`),
        ask(path, "POST", `/v1/accounts/${data.link_id}/links`, { purpose: "view" }),
        ask(path, "POST", links, { purpose: "replace", credential_id: tenant.account_id }),
        ask(path, "POST", links, { purpose: "connect", expires_in: 90_000 })
      ],
      Effect.map(({ status }) => status)
    )
    assert.deepStrictEqual(statuses, [404, 404, 400, 400])
  })
})
