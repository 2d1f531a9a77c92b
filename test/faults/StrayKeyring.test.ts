import { Cause, type Context, Effect, Exit, Layer, Schema } from "effect"
import * as Byok from "../../src/wiring/Byok.ts"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import type { AccountId } from "../../src/domain/Identifiers.ts"
import { NewCredential } from "../../src/domain/NewCredential.ts"
import { SealingRefused } from "../../src/port/Cipher.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { Readiness } from "../../src/port/Readiness.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { adminClient, migratedDatabase, settingsFor } from "../support/database/freshDatabase.ts"
import type { Parts } from "../support/http/TestService.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { onlyObject } from "../support/process/CommandLine.ts"
import { eventually } from "../support/process/eventually.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { assert, describe, it } from "../support/it.ts"

type Instance = Context.Context<Parts>

const instanceWith = (url: string, ...kek_ids: ReadonlyArray<string>) =>
  Effect.orDie(Layer.build(Layer.fresh(Byok.layerWith(settingsFor(url, ringOf(...kek_ids))))))

const create = (instance: Instance, account_id: AccountId) =>
  Effect.gen(function* () {
    const input = yield* Schema.decodeUnknownEffect(NewCredential)({ provider: "groq", key: "fake-key" })
    return (yield* (yield* Credentials).create(input)).credential
  }).pipe(Effect.provideService(CurrentPrincipal, { kind: "in_process", account_id }), Effect.provide(instance))

const reported = (instance: Instance) =>
  Effect.flatMap(Readiness, (readiness) => Effect.all(readiness)).pipe(Effect.provide(instance))

const newAccount = (instance: Instance) =>
  Effect.map(
    Effect.provide(
      Effect.flatMap(Accounts, ({ createAccount }) => createAccount("n")),
      instance
    ),
    (made) => made.account_id
  )

const refusal = Effect.fnUntraced(function* (attempt: Effect.Effect<unknown, unknown>) {
  const exit = yield* Effect.exit(attempt)
  assert(Exit.isFailure(exit))
  const failure = Cause.squash(exit.cause)
  assert.instanceOf(failure, SealingRefused)
  return failure.reason
})

const well = { problems: [], warnings: [] }

describe("of instances with different keyrings over one database", () => {
  it.live("one that differs stores nothing and is not ready; the others stay ready and store (F3)", function* () {
    const url = yield* migratedDatabase
    const sql = yield* adminClient(url)
    const [one, other] = [yield* instanceWith(url, "ours"), yield* instanceWith(url, "ours")]
    const account_id = yield* newAccount(one)
    yield* create(one, account_id)
    const stray = yield* instanceWith(url, "stray")
    const reason = "neither key stray nor another key of this keyring has ever sealed"
    assert.strictEqual(yield* refusal(create(stray, account_id)), `${reason}: put key ours back`)
    assert.deepStrictEqual((yield* reported(stray)).problems, [`${reason}: nothing can be sealed`])
    for (const instance of [one, other]) {
      yield* create(instance, account_id)
      assert.deepStrictEqual(yield* reported(instance), well)
    }
    assert.lengthOf(yield* sql`SELECT 1 FROM credentials WHERE kek_id <> 'ours'`, 0)
  })

  it.live("only one seals if all store for the first time at once (F3)", function* () {
    for (const _ of [1, 2, 3, 4, 5]) {
      const url = yield* migratedDatabase
      const sql = yield* adminClient(url)
      const instances = yield* Effect.forEach(["a", "b", "c"], (id) => instanceWith(url, id))
      const account_id = yield* newAccount(instances[0] as Instance)
      const exits = yield* Effect.forEach(instances, (instance) => Effect.exit(create(instance, account_id)), {
        concurrency: "unbounded"
      })
      assert.lengthOf(exits.filter(Exit.isSuccess), 1)
      assert.lengthOf(yield* sql`SELECT DISTINCT kek_id FROM credentials`, 1)
    }
  })
})

describe("a keyring without the key of a credential", () => {
  it.live("is reported at the start of the service, and by a command that needs the key (C3)", function* () {
    const DATABASE_URL = yield* migratedDatabase
    const ours = yield* instanceWith(DATABASE_URL, "ours")
    const account_id = yield* newAccount(ours)
    const { id } = yield* create(ours, account_id)
    const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("stray") }
    const service = yield* startService(settings)
    yield* eventually("what is not ready is in the log", () =>
      service.stderr().includes("Not ready: neither key stray")
    )
    assert.match(service.stderr(), /key ours is missing from the keyring; credentials that cannot be opened: 1\n/)
    const disable = runCommand(["credential", "disable", id, "--account", account_id], settings)
    const { code, stderr } = yield* disable
    const failed = `The key of credential ${id} cannot be opened: key ours is not in the keyring.`
    const cure = "Put it back: until then the credential can only be renamed or deleted."
    assert.deepStrictEqual([code, stderr], [1, `${failed} ${cure}\n`])
  })
})

describe("byok keyring stranded and admit", () => {
  it.live("list the credentials of a lost key, and allow a new keyring to seal (F3)", function* () {
    const url = yield* migratedDatabase
    const sql = yield* adminClient(url)
    const ours = yield* instanceWith(url, "ours")
    const account_id = yield* newAccount(ours)
    const { id, workspace_id } = yield* create(ours, account_id)
    const byok = (keyring: string, ...args: ReadonlyArray<string>) =>
      runCommand(["keyring", ...args], { DATABASE_URL: url, BYOK_KEYRING: ringOf(keyring) })

    assert.deepStrictEqual(yield* byok("ours", "stranded"), {
      code: 0,
      stdout: "No credential is stranded.\n",
      stderr: ""
    })
    assert.deepStrictEqual(yield* byok("new", "stranded"), {
      code: 0,
      stdout: `${id}  account: ${account_id}, workspace: ${workspace_id}, key: ours\n`,
      stderr: ""
    })
    const credentials = [{ kek_id: "ours", account_id, workspace_id, credential_id: id }]
    assert.deepStrictEqual(onlyObject(yield* byok("new", "stranded", "--json")), { credentials, total: 1 })

    const renewed = yield* instanceWith(url, "new")
    yield* refusal(create(renewed, account_id))
    assert.strictEqual((yield* byok("new", "admit")).stdout, "kek_id  new\nrole    primary\n")
    yield* create(renewed, account_id)
    assert.deepStrictEqual((yield* reported(renewed)).problems, [])
    yield* byok("new", "admit")
    const admitted = sql`SELECT 1 FROM audit_entries WHERE events::text LIKE '%"keyring.admit"%'`
    assert.lengthOf(yield* admitted, 1, "recorded once")
  })
})
