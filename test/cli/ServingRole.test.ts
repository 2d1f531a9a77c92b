import { readFileSync } from "node:fs"
import { join } from "node:path"
import { randomBytes } from "node:crypto"
import { Context, DateTime, Effect, Exit } from "effect"
import { AccountId, CredentialId } from "../../src/domain/Identifiers.ts"
import { useFromLease } from "../../src/domain/routing/LastUse.ts"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { CredentialUse } from "../../src/port/CredentialUse.ts"
import { Parkings } from "../../src/port/Parkings.ts"
import { adminClient, freshDatabase, migratedDatabase } from "../support/database/freshDatabase.ts"
import { storesOn } from "../support/database/stores.ts"
import { createOver, getOver, idIn } from "../support/http/callByok.ts"
import { create, send } from "../support/http/HttpProbe.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const page = readFileSync(join(import.meta.dirname, "../../docs/operating.md"), "utf8")
const [grants = "", erasingGrants = ""] = Array.from(page.matchAll(/^```sql\n(.*?)^```/gms), ([, block]) => block ?? "")
/** The rights that a sentence or the grants name, one entry for each table and right. */
const rightsIn = (text: string, pattern: RegExp) =>
  new Set(
    Array.from(text.matchAll(pattern)).flatMap(([, kinds = "", tables = ""]) =>
      kinds.split(", ").flatMap((kind) => tables.split(", ").map((table) => `${kind} ${table}`))
    )
  )
const credential = { provider: "groq", key: "fake-key-fake-key" }

/** A role without rights of its own and the URL with which it connects; gone when the scope closes. */
const newRole = Effect.fnUntraced(function* (url: string) {
  const sql = yield* adminClient(url)
  const role = `byok_test_${randomBytes(6).toString("hex")}`
  yield* Effect.acquireRelease(sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'of the role'`), () =>
    Effect.orDie(Effect.andThen(sql.unsafe(`DROP OWNED BY ${role}`), sql.unsafe(`DROP ROLE ${role}`)))
  )
  return { role, url: url.replace(/\/\/[^@/]*@/, `//${role}:${encodeURIComponent("of the role")}@`) }
})

describe("a database role without the privilege to create tables", () => {
  it.live("cannot set up an empty database; the error names the missing permission (C4)", function* () {
    const { url } = yield* newRole(yield* freshDatabase)
    for (const args of [["migrate"], ["account", "create", "--name", "n"]]) {
      const { code, stderr } = yield* runCommand(args, { DATABASE_URL: url })
      assert.deepStrictEqual(
        [code, stderr],
        [1, "DATABASE_URL: the user lacks a permission (42501); run `byok migrate` as the owner of the database.\n"]
      )
    }
  })
})

describe("a database role with the privileges that docs/operating.md grants", () => {
  it.live("serves and runs commands, but may not migrate or, without more grants, delete accounts (F1)", function* () {
    const owner = yield* migratedDatabase
    const sql = yield* adminClient(owner)
    const { role, url } = yield* newRole(owner)
    const settings = { DATABASE_URL: url, BYOK_KEYRING: ringOf("kek"), BYOK_MIGRATE: "check" }
    const denied = yield* runCommand(["account", "create", "--name", "n"], settings)
    assert.match(denied.stderr, /^DATABASE_URL: the user lacks rights that docs\/operating\.md says to grant: .*\.\n$/)
    assert.deepStrictEqual(
      rightsIn(denied.stderr, /([A-Z][A-Z, ]+) on (\w+)/g),
      rightsIn(grants, /GRANT ([A-Z, ]+) ON (?!SCHEMA)(.+?) TO/g)
    )

    assert.include(grants, "byok_serving")
    const grant = (statements: string) =>
      Effect.forEach(
        statements.split(";").filter((statement) => statement.trim() !== ""),
        (statement) => sql.unsafe(statement.replaceAll(/byok_serving|byok_erasing/g, role))
      )
    yield* grant(grants)
    const account = onlyObject(yield* runCommand(["account", "create", "--name", "n", "--json"], settings))
    const key = textIn(account, "management_key")
    const socket = join(yield* temporaryDirectory, "gateway.sock")
    const service = yield* startService({ ...settings, BYOK_GATEWAY_SOCKET: socket })
    assert.strictEqual((yield* Effect.promise(() => fetch(`${service.url}/health/ready`))).status, 200)
    const created = yield* createOver(service.url, key, credential)
    assert.strictEqual(created.status, 201)
    assert.strictEqual((yield* getOver(service.url, key, idIn(created))).status, 200)
    for (const _ of ["first", "again"]) {
      const answer = yield* create(service.url, key, credential, [["Idempotency-Key", "a-key"]])
      assert.strictEqual(answer.status, 201)
    }
    const workspace = yield* runCommand(
      ["workspace", "create", "--account", textIn(account, "account_id"), "--name", "w", "--json"],
      settings
    )
    const commands = [
      ["workspace", "delete", textIn(onlyObject(workspace), "workspace_id"), "--yes"],
      ["api-key", "revoke", textIn(account, "management_key_hash")],
      ["leak", "clear", idIn(created), "--account", textIn(account, "account_id")],
      ["audit", "verify"],
      ["keyring", "rewrap"],
      ["keyring", "status"],
      ["keyring", "stranded"],
      ["keyring", "admit"]
    ]
    for (const command of commands) assert.strictEqual((yield* runCommand(command, settings)).code, 0, command.join())
    const search = yield* runCommand(["leak", "find", "--park"], settings, credential.key)
    assert.include(search.stdout, `found     ${idIn(created)}`)
    assert.notInclude(service.stderr(), "ERROR")

    const used = {
      account_id: AccountId.make(textIn(account, "account_id")),
      credential_id: CredentialId.make(idIn(created))
    }
    const ports = yield* storesOn(url)
    const parking = { key_version: 1, model: "m", epoch: 0, cause: "rejected", strikes: 1, remaining: 0 } as const
    yield* Context.get(ports, Parkings).store([{ ...used, ...parking }])
    for (const at of [1, 2]) yield* Context.get(ports, CredentialUse).store([{ ...used, ...useFromLease(at) }])
    const shown = yield* runCommand(["credential", "show", used.credential_id, "--account", used.account_id], settings)
    assert.match(shown.stdout, /^last_leased_at +1970-01-01T00:00:00\.002Z$/m)

    yield* sql.unsafe(`REVOKE SELECT ON credential_parkings FROM ${role}`)
    const partly = yield* runCommand(["serve"], settings)
    const lacking = "DATABASE_URL: the user lacks rights that docs/operating.md says to grant:"
    assert.deepStrictEqual([partly.code, partly.stderr], [1, `${lacking} SELECT on credential_parkings.\n`])
    yield* sql.unsafe(`GRANT SELECT ON credential_parkings TO ${role}`)

    const erase = runCommand(["account", "delete", used.account_id, "--yes"], settings)
    const refused = (yield* erase).stderr
    assert.strictEqual(
      refused,
      `${lacking} UPDATE, DELETE on accounts; DELETE on workspaces; DELETE on api_keys; DELETE on pools.\n`
    )
    const account_id = textIn(
      onlyObject(yield* runCommand(["account", "create", "--name", "n", "--json"], settings)),
      "account_id"
    )
    const eraseOverSocket = send(socket, { method: "DELETE", path: `/v1/accounts/${account_id}` })
    const forbidden = yield* eraseOverSocket
    assert.strictEqual(forbidden.status, 403)
    assert.include(forbidden.body, "may not delete accounts: docs/operating.md says which rights to grant it")
    assert.strictEqual((yield* send(socket, { path: `/v1/accounts/${account_id}/api-keys` })).status, 200)
    yield* grant(erasingGrants)
    yield* sql.unsafe(`REVOKE DELETE ON workspaces FROM ${role}`)
    const erasure = Context.get(ports, AccountRepository).eraseAccount(used.account_id, yield* DateTime.now, 1)
    const stored = sql`SELECT id FROM credentials WHERE account_id = ${used.account_id}`
    const before = yield* stored
    assert.isAbove(before.length, 1, "a batch of one leaves others")
    assert.isTrue(Exit.isFailure(yield* Effect.exit(erasure)))
    assert.deepStrictEqual(yield* stored, before, "nothing is deleted by a role that may not delete everything")
    yield* sql.unsafe(`GRANT DELETE ON workspaces TO ${role}`)
    const erased = yield* erase
    assert.strictEqual(erased.code, 0, erased.stderr)
    assert.strictEqual((yield* eraseOverSocket).body, '{"deleted":true}')

    yield* sql`DELETE FROM effect_sql_migrations`
    const migrate = yield* runCommand(["migrate"], settings)
    assert.strictEqual(migrate.code, 1)
    assert.match(
      migrate.stderr,
      /^DATABASE_URL: the user lacks a permission \(42501\); run `byok migrate` as the owner of the database\.\n$/
    )
  })
})
