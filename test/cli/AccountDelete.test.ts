import { createHash, randomUUID } from "node:crypto"
import { Effect } from "effect"
import { AccountId, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { databaseContent, leakOf } from "../support/keys/leakSearch.ts"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { plainCredential } from "../support/database/plainCredential.ts"
import { storesOn } from "../support/database/stores.ts"
import { createAccount, onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { assert, describe, it } from "../support/it.ts"

const sha256 = (text: string) => createHash("sha256").update(text).digest()

/** A database with two accounts, the first with so many credentials, their sealed keys and labels recognisable. */
const begin = Effect.fnUntraced(function* (count: number) {
  const DATABASE_URL = yield* migratedDatabase
  const settings = { DATABASE_URL }
  const sql = yield* adminClient(DATABASE_URL)
  const newAccount = Effect.map(createAccount(settings), (made) => ({
    account_id: AccountId.make(textIn(made, "account_id")),
    workspace_id: WorkspaceId.make(textIn(made, "workspace_id"))
  }))
  const [one, other] = [yield* newAccount, yield* newAccount]
  const secrets: Array<string> = []
  yield* Effect.gen(function* () {
    const { insert } = yield* CredentialRepository
    const insertOne = ({ account_id, workspace_id }: typeof one, number: number) => {
      const id = randomUUID()
      const sealed = Buffer.concat([sha256(`${id} 1`), sha256(`${id} 2`)])
      const wrapped_dek = Buffer.concat([sha256(`${id} 3`), sha256(`${id} 4`).subarray(0, 28)])
      const label = `${id.slice(0, 3)}...${id.slice(-4)}`
      if (account_id === one.account_id && number < 20) {
        secrets.push(sealed.toString("hex"), wrapped_dek.toString("hex"), `"${label}"`)
      }
      return insert(
        account_id,
        { ...plainCredential(workspace_id, id), label, name: "name of a customer" },
        { kek_id: "kek-1", sealed, wrapped_dek },
        { key_hash: sha256(`${id} 5`), fingerprint: sha256(`${id} 6`) }
      )
    }
    for (const [account, credentials] of [
      [one, count],
      [other, 30]
    ] as const) {
      const numbers = Array.from({ length: credentials }, (_, number) => number)
      yield* Effect.forEach(numbers, (number) => insertOne(account, number), { concurrency: 30 })
    }
  }).pipe(Effect.provide(yield* storesOn(DATABASE_URL)))
  const rowsOf = (account_id: AccountId) =>
    Effect.map(databaseContent(sql), (content) =>
      content
        .split("\n")
        .filter((line) => line.includes(account_id))
        .toSorted()
    )
  const credentialsOf = (account_id: AccountId) =>
    Effect.map(
      sql<{ count: number }>`SELECT count(*)::int AS count FROM credentials WHERE account_id = ${account_id}`,
      ([row]) => row?.count
    )
  return { settings, sql, one, other, secrets, rowsOf, credentialsOf }
})

describe("byok account delete (L13)", () => {
  it.live("erases the account and its credentials; only the audit log keeps their ids and labels", function* () {
    const { one, other, rowsOf, secrets, settings, sql } = yield* begin(30)
    const untouched = yield* rowsOf(other.account_id)
    const content = yield* databaseContent(sql)
    for (const secret of secrets) assert.include(content, secret, "control")

    const deleted = onlyObject(yield* runCommand(["account", "delete", one.account_id, "--yes", "--json"], settings))
    assert.deepStrictEqual(deleted, { account_id: one.account_id, credentials: 30 })

    const rest = yield* databaseContent(sql)
    assert.isUndefined(
      leakOf(
        rest,
        secrets.filter((secret) => secret.length > 12)
      )
    )
    const withLabels = rest.split("\n").filter((line) => secrets.some((secret) => line.includes(secret)))
    assert.isNotEmpty(withLabels)
    assert.isTrue(withLabels.every((line) => line.includes('"events"')))
    assert.deepStrictEqual(yield* rowsOf(other.account_id), untouched)
    const lines = yield* rowsOf(one.account_id)
    assert.isTrue(
      lines.every((line) => line.includes('"events"')),
      "all that names the account is audit"
    )
    const events = (yield* eventsIn(sql)).filter(
      (event) => "account_id" in event && event.account_id === one.account_id
    )
    const kinds = Map.groupBy(events, ({ action }) => action)
    for (const [action, count] of [
      ["api_key.revoke", 1],
      ["workspace.delete", 1],
      ["credential.delete", 30],
      ["account.delete", 1]
    ] as const) {
      assert.lengthOf(kinds.get(action) ?? [], count, action)
    }
    assert.strictEqual(events.at(-1)?.action, "account.delete")
    assert.strictEqual(events.at(-1)?.actor.kind, "cli")
    const created = new Set(
      kinds.get("credential.create")?.map((event) => Reflect.get(event, "credential_id") as unknown)
    )
    const gone = kinds.get("credential.delete")?.map((event) => Reflect.get(event, "credential_id") as unknown)
    assert.sameMembers(gone ?? [], Array.from(created))

    const again = yield* runCommand(["account", "delete", one.account_id, "--yes"], settings)
    assert.deepStrictEqual([again.code, again.stderr], [1, "There is no such account.\n"])
  })
})
