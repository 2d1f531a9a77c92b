import { chmodSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { labelOf } from "../../src/domain/labelOf.js"
import { accessKey, serviceAccount } from "../support/keys/cloudKeys.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { databaseContent, leakOf } from "../support/keys/leakSearch.ts"
import { createdId } from "../support/http/Bodies.ts"
import { bearer, create, json, operationsOf, send } from "../support/http/HttpProbe.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { createAccount, onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"
import type { Finished } from "../support/process/runNode.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const plain = "sk-Jq8vXw2RkTz5-Yb7NcLm4Hd9Gf3-Ps6A"
const privateKey = serviceAccount.private_key
const secretAccessKey = "wJalrXUtnFEMIfakeK7MDENGbPxRfiCYEXAMPLE"
const azureKey = "Mn4Bv8Cx2Zl6Kj0Hg-fake-azure"
const materialKey = "sk-proj-Tr5Ew3Qa1Zs7Xd9Cf2Vg4Bh6"
const short = "fake-key-short"
const leaks = [plain, privateKey, secretAccessKey, azureKey, materialKey, short]

/** A provider, a key, and the leaked text that should lead to the key. */
const credentials = [
  ["xai", plain, plain],
  ["anthropic", plain, plain],
  ["google-vertex", JSON.stringify(serviceAccount, null, 2), privateKey],
  ["amazon-bedrock", JSON.stringify({ ...accessKey, secretAccessKey }), secretAccessKey],
  ["azure", JSON.stringify([{ model_slug: "a/b", endpoint_url: "https://fake.test", api_key: azureKey }]), azureKey],
  ["openai", JSON.stringify({ api_key: materialKey, region: "us" }), materialKey],
  ["groq", short, short],
  ["cohere", "sk-Another-0123456789-0123456789", ""]
] as const

interface Search {
  readonly searched: number
  readonly opened: number
  readonly found: ReadonlyArray<Record<string, unknown>>
  readonly unopened: ReadonlyArray<Record<string, unknown>>
}

/** The credentials of two accounts, and the commands that search them. */
const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* migratedDatabase
  const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek") }
  const directory = yield* temporaryDirectory
  const made = yield* Effect.forEach([0, 1], (rest) =>
    Effect.gen(function* () {
      const account = yield* createAccount(settings)
      const own = credentials.filter((_, index) => index % 2 === rest)
      const file = join(directory, `${rest}.jsonl`)
      writeFileSync(file, own.map(([provider, key]) => JSON.stringify({ provider, key })).join("\n"), { mode: 0o600 })
      const account_id = textIn(account, "account_id")
      const { stdout } = yield* runCommand(["credential", "import", file, "--account", account_id], settings)
      const ids = stdout.split("\n").map((line) => /"id":"([^"]+)"/.exec(line)?.[1] ?? "")
      return own.map(([provider, , leak], index) => ({
        ids: { account_id, workspace_id: textIn(account, "workspace_id"), credential_id: ids[index] ?? "" },
        management_key: textIn(account, "management_key"),
        provider,
        leak
      }))
    })
  )
  const printed: Array<Finished> = []
  const find = (leak: string | Buffer, ...flags: ReadonlyArray<string>) =>
    Effect.tap(runCommand(["leak", "find", ...flags], settings, leak), (finished) =>
      Effect.sync(() => void printed.push(finished))
    )
  const search = (leak: string, ...flags: ReadonlyArray<string>) =>
    Effect.map(find(leak, "--json", ...flags), ({ code, stderr, stdout }) => {
      assert.strictEqual(code, 0, stderr)
      return JSON.parse(stdout) as Search
    })
  return { settings, made: made.flat(), find, search, printed, sql: yield* adminClient(DATABASE_URL) }
})

describe("byok leak find and clear", () => {
  it.live("find lists credentials with the leaked text in all accounts, and prints no key (L15, T4)", function* () {
    const { find, made, printed, search, settings, sql } = yield* begin
    const isFound = Effect.fnUntraced(function* (leak: string, ...flags: ReadonlyArray<string>) {
      const holders = made.filter((one) => one.leak === leak)
      assert.isNotEmpty(holders)
      const { found, opened, searched } = yield* search(leak, ...flags)
      assert.strictEqual(searched, made.length)
      assert.sameDeepMembers<unknown>(
        found.map(({ label: _label, name: _name, ...shown }) => shown),
        holders.map(({ ids, provider }) => ({ ...ids, provider, key_version: 1, parked: false }))
      )
      return opened
    })
    for (const leak of leaks) yield* isFound(leak)
    assert.strictEqual(yield* isFound(plain, "--all"), made.length)
    const { found, opened } = yield* search("sk-Jq8vXw2RkTz5-Nobody-s-Key-01-Ps6A")
    assert.deepStrictEqual(found, [], "a key with the label of another one")
    assert.strictEqual(opened, 6, "two of that label, three JSON, and a hidden one")
    printed.push(yield* runCommand(["leak", "find", "--all"], { ...settings, LOG_LEVEL: "trace" }, plain))
    const { code, stderr, stdout } = yield* find(`${plain}\n`)
    assert.strictEqual(code, 0)
    assert.match(stdout, /^found {5}[0-9a-f-]{36} {2}account: .*label: sk-\.\.\.Ps6A, key version: 1\n/)
    assert.match(stderr, /^searched 8 of 8 credentials, 6 opened, 2 found\n$/)

    const searches = (yield* eventsIn(sql)).filter(({ action }) => action === "leak.search")
    assert.lengthOf(searches, leaks.length + 4)
    assert.deepInclude(searches.at(-1), { searched: 8, found: 2 })

    const [altered] = made
    assert(altered !== undefined)
    const { account_id, credential_id } = altered.ids
    yield* sql`UPDATE credentials SET disabled = true WHERE id = ${credential_id}`
    const damaged = yield* find(plain, "--json")
    const { found: left, unopened } = JSON.parse(damaged.stdout) as Search
    assert.lengthOf(left, 1)
    const reason = "the credential or its sealed key was altered"
    assert.deepStrictEqual(unopened, [{ ...altered.ids, key_version: 1, reason }])
    assert.match(damaged.stderr, /\nCredentials that may hold it and did not open: 1\.\n$/)
    assert.strictEqual(damaged.code, 1)
    assert.include((yield* find(plain)).stdout, `unopened  ${credential_id}  account: ${account_id}: ${reason}\n`)

    const shown = printed.flatMap(({ stderr, stdout }) => [stdout, stderr])
    assert.isUndefined(leakOf([...shown, yield* databaseContent(sql)].join("\n"), leaks))
    assert.strictEqual(leakOf(`${shown.join("\n")}${plain.slice(5, 14)}`, leaks), plain, "control")
  })

  it.live("find --park parks keys until replaced or cleared, and audits each change once (L16)", function* () {
    const { made, search, settings, sql } = yield* begin
    const { url } = yield* startService(settings)
    const [one, other] = made.filter(({ leak }) => leak === plain)
    assert(one !== undefined && other !== undefined)
    const [id, otherId] = [one.ids.credential_id, other.ids.credential_id]
    const parked = Effect.map(search(plain), ({ found }) =>
      Object.fromEntries(
        found.map(({ credential_id, key_version, parked }) => [String(credential_id), [key_version, parked]])
      )
    )
    for (const _ of ["first", "again"]) {
      const { found } = yield* search(plain, "--park")
      assert.deepStrictEqual(
        found.map(({ parked }) => parked),
        [true, true]
      )
    }
    const clear = (credential_id: string, { ids }: typeof one) =>
      runCommand(["leak", "clear", credential_id, "--account", ids.account_id, "--json"], settings)
    const unknown = { code: 1, stdout: "", stderr: "There is no such credential.\n" }
    assert.deepStrictEqual(yield* clear(otherId, one), unknown)
    const cleared = yield* clear(otherId, other)
    assert.deepStrictEqual(onlyObject(cleared), { ...other.ids, parked: false })
    assert.deepStrictEqual(yield* clear(otherId, other), cleared)
    assert.deepStrictEqual(yield* parked, { [id]: [1, true], [otherId]: [1, false] })

    const request = (method: string, body?: object) =>
      send(url, {
        method,
        path: `/api/v1/byok/${id}`,
        headers: [bearer(one.management_key), ...(body === undefined ? [] : [json])],
        ...(body === undefined ? {} : { body: JSON.stringify(body) })
      })
    const replace = (key: string) => request("PATCH", { key })
    const wrapped = yield* replace(JSON.stringify({ api_key: plain }))
    assert.strictEqual(wrapped.status, 400)
    const refusal = '"path":["key"],"message":"must not hold a secret that is marked as leaked in this account"'
    assert.include(wrapped.body, refusal)
    const same = yield* replace(plain)
    assert.strictEqual(same.status, 400)
    assert.include(same.body, refusal)
    const createWith = ({ management_key }: typeof one, provider: string, key: string) =>
      create(url, management_key, { provider, key })
    for (const [provider, key] of [
      [one.provider, plain],
      ["azure", plain],
      ["openai", JSON.stringify({ api_key: plain })],
      ["amazon-bedrock", JSON.stringify({ ...accessKey, secretAccessKey: plain })]
    ] as const) {
      const refused = yield* createWith(one, provider, key)
      assert.strictEqual(refused.status, 400, provider)
      assert.include(refused.body, refusal)
      assert.notInclude(refused.body, plain)
    }
    assert.strictEqual((yield* createWith(one, "azure", `${plain}x`)).status, 201, "control: another key")
    const elsewhere = createdId(yield* createWith(other, "azure", plain))
    assert.strictEqual((yield* operationsOf(url, other.management_key).delete(elsewhere)).status, 200, "control")
    assert.deepStrictEqual(yield* parked, { [id]: [1, true], [otherId]: [1, false] })
    const patched = yield* replace(`${plain}-replaced`)
    assert.strictEqual(patched.status, 200)
    assert.deepStrictEqual(yield* parked, { [otherId]: [1, false] })
    const [again] = (yield* search(`${plain}-replaced`)).found
    assert.deepStrictEqual([again?.["key_version"], again?.["parked"]], [2, false])

    const recordedOf = ({ ids, provider }: typeof one) => ({ ...ids, provider, label: labelOf(plain) })
    const acts = (yield* eventsIn(sql)).filter(({ action }) => /^credential\.(un)?park$/.test(action))
    assert.sameDeepMembers(
      acts.map(({ actor: _, ...act }): unknown => act),
      [
        { action: "credential.park", ...recordedOf(one), key_version: 1 },
        { action: "credential.park", ...recordedOf(other), key_version: 1 },
        { action: "credential.unpark", ...recordedOf(other), key_version: 1 }
      ]
    )
    assert.isTrue(acts.every(({ actor }) => actor.kind === "cli"))
    assert.strictEqual((yield* request("DELETE")).status, 200)
    const left = sql`SELECT 1 FROM credential_parkings WHERE credential_id = ${id}`
    assert.lengthOf(yield* left, 0)
    assert.deepStrictEqual(yield* clear(id, one), unknown)
  })

  it.live("find refuses unusable text, and needs a keyring, which clear does not", function* () {
    const DATABASE_URL = yield* migratedDatabase
    const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek") }
    const directory = yield* temporaryDirectory
    const file = (name: string, mode: number) => {
      const path = join(directory, name)
      writeFileSync(path, plain)
      chmodSync(path, mode)
      return path
    }
    const find = (input: string | Buffer, ...flags: ReadonlyArray<string>) =>
      runCommand(["leak", "find", ...flags], settings, input)
    const refused: ReadonlyArray<readonly [input: string | Buffer, flags: ReadonlyArray<string>, sentence: string]> = [
      ["", [], "The leaked text must not be empty."],
      ["\uFEFF\r\n", [], "The leaked text must not be empty."],
      ["k".repeat(256 * 1024 + 1), [], "The leaked text must have at most 256 KiB."],
      [Buffer.from(`${plain}\xff`, "latin1"), [], "The leaked text must be UTF-8."],
      [Buffer.from(plain, "utf16le"), [], "The leaked text must be UTF-8 without U+0000."],
      ["", ["--file", file("open", 0o644)], "--file: expected a file of mode 0400 or 0600; found 0644."],
      [
        "",
        ["--file", join(directory, "gone")],
        "--file: expected a file that can be read: no such file or directory (ENOENT)."
      ]
    ]
    for (const [input, flags, sentence] of refused) {
      assert.deepStrictEqual(yield* find(input, ...flags), { code: 1, stdout: "", stderr: `${sentence}\n` })
    }
    const { stdout } = yield* find("", "--json", "--file", file("private", 0o600))
    const nothing = { searched: 0, opened: 0, found: [], unopened: [], unopened_total: 0 }
    assert.deepStrictEqual<unknown>(JSON.parse(stdout), nothing)
    assert.strictEqual((yield* find("k".repeat(256 * 1024))).code, 0, "as much as a body may have")

    const without = yield* runCommand(["leak", "find"], { DATABASE_URL }, plain)
    assert.strictEqual(without.code, 1)
    assert.match(without.stderr, /^BYOK_KEYRING_FILE, BYOK_KEYRING_COMMAND or BYOK_KEYRING must be set/)
    const id = "01935f6a-0000-7000-8000-000000000000"
    const unknown = yield* runCommand(["leak", "clear", id, "--account", id], { DATABASE_URL })
    assert.deepStrictEqual(unknown, { code: 1, stdout: "", stderr: "There is no such credential.\n" })
  })
})
