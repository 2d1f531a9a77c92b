import { chmodSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { databaseContent, leakOf } from "../support/keys/leakSearch.ts"
import { createOver, idIn } from "../support/http/callByok.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { createAccount, onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"
import type { Finished } from "../support/process/runNode.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const plain = "sk-Jq8vXw2RkTz5-Yb7NcLm4Hd9Gf3-Ps6A"
const privateKey = "-----BEGIN FAKE KEY-----\nZx7Qw9Er5Ty3Ui1Op\n-----END FAKE KEY-----\n"
const secretAccessKey = "wJalrXUtnFEMIfakeK7MDENGbPxRfiCYEXAMPLE"
const azureKey = "Mn4Bv8Cx2Zl6Kj0Hg-fake-azure"
const materialKey = "sk-proj-Tr5Ew3Qa1Zs7Xd9Cf2Vg4Bh6"
const short = "fake-key-short"
const leaks = [plain, privateKey, secretAccessKey, azureKey, materialKey, short]

/** A provider and the key it is given, and the leak that should lead to it. */
const credentials = [
  ["xai", plain, plain],
  ["anthropic", plain, plain],
  ["google-vertex", JSON.stringify({ type: "service_account", private_key: privateKey }, null, 2), privateKey],
  [
    "amazon-bedrock",
    JSON.stringify({ accessKeyId: "AKIAFAKE", secretAccessKey, region: "us-east-1" }),
    secretAccessKey
  ],
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

/** A service with the credentials of two accounts, and the command beside it. */
const begin = Effect.gen(function* () {
  const DATABASE_URL = yield* migratedDatabase
  const settings = { DATABASE_URL, BYOK_KEYRING: ringOf("kek") }
  const accounts = [yield* createAccount(settings), yield* createAccount(settings)]
  const service = yield* startService({ ...settings, LOG_LEVEL: "trace" })
  const made = yield* Effect.forEach(credentials, ([provider, key, leak], index) => {
    const account = accounts[index % 2] ?? {}
    return Effect.map(createOver(service.url, textIn(account, "management_key"), { provider, key }), (answer) => ({
      account_id: textIn(account, "account_id"),
      workspace_id: textIn(account, "workspace_id"),
      management_key: textIn(account, "management_key"),
      credential_id: idIn(answer),
      provider,
      leak
    }))
  })
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
  return { settings, service, made, find, search, printed, sql: yield* adminClient(DATABASE_URL) }
})

describe("byok leak find and clear", () => {
  it.live(
    "finds whole keys and parts of keys of all accounts, equally with --all, and shows nothing of them (L15, T4)",
    () =>
      Effect.gen(function* () {
        const { find, made, printed, search, service, settings, sql } = yield* begin
        for (const leak of leaks) {
          const holders = made.filter((one) => one.leak === leak)
          assert.isNotEmpty(holders)
          const quick = yield* search(leak)
          const thorough = yield* search(`${leak}\n`, "--all")
          for (const { found, searched } of [quick, thorough]) {
            assert.strictEqual(searched, made.length)
            assert.sameDeepMembers(
              found.map(({ account_id, credential_id, key_version, parked, provider, workspace_id }) => ({
                account_id,
                workspace_id,
                credential_id,
                provider,
                key_version,
                parked
              })),
              holders.map(({ account_id, credential_id, provider, workspace_id }) => ({
                account_id,
                workspace_id,
                credential_id,
                provider,
                key_version: 1,
                parked: false
              }))
            )
          }
          assert.strictEqual(thorough.opened, made.length)
        }
        const { found, opened } = yield* search("sk-Jq8vXw2RkTz5-Nobody-s-Key-01-Ps6A")
        assert.deepStrictEqual(found, [], "a key with the label of another one")
        assert.strictEqual(opened, 6, "two of that label, three JSON, and a hidden one")
        printed.push(yield* runCommand(["leak", "find", "--all"], { ...settings, LOG_LEVEL: "trace" }, plain))
        const { code, stderr, stdout } = yield* find(plain)
        assert.strictEqual(code, 0)
        assert.match(
          stdout,
          /^searched {2}8, 6 opened\nfound {5}[0-9a-f-]{36} {2}account: .*label: sk-\.\.\.Ps6A, key version: 1\n/
        )
        assert.match(stderr, /^searched 8 of 8 credentials, 6 opened, 2 found\n$/)

        const searches = (yield* eventsIn(sql)).filter(({ action }) => action === "leak.search")
        assert.lengthOf(searches, 2 * leaks.length + 3)
        assert.deepInclude(searches.at(-1), { searched: 8, found: 2 })
        const shown = [...printed.flatMap(({ stderr, stdout }) => [stdout, stderr]), service.stderr(), service.stdout()]
        assert.isUndefined(leakOf([...shown, yield* databaseContent(sql)].join("\n"), leaks))
        assert.strictEqual(leakOf(`${shown.join("\n")}${plain.slice(5, 14)}`, leaks), plain, "control")
      })
  )

  it.live("parks what it finds until the key is replaced or the mark is cleared; each act is recorded once (L16)", () =>
    Effect.gen(function* () {
      const { made, search, service, settings, sql } = yield* begin
      const [one, other] = made
      if (one === undefined || other === undefined) return assert.fail("nothing was made")
      const parked = Effect.map(search(plain), ({ found }) =>
        Object.fromEntries(
          found.map(({ credential_id, key_version, parked }) => [String(credential_id), [key_version, parked]])
        )
      )
      const ids = ({ account_id, credential_id, workspace_id }: typeof one) => ({
        account_id,
        workspace_id,
        credential_id
      })
      for (const _ of ["first", "again"]) {
        const { found } = yield* search(plain, "--park")
        assert.deepStrictEqual(
          found.map(({ parked }) => parked),
          [true, true]
        )
      }
      const clear = (credential_id: string, account_id: string) =>
        runCommand(["leak", "clear", credential_id, "--account", account_id, "--json"], settings)
      const unknown = { code: 1, stdout: "", stderr: "There is no such credential.\n" }
      assert.deepStrictEqual(yield* clear(other.credential_id, one.account_id), unknown)
      const cleared = yield* clear(other.credential_id, other.account_id)
      assert.deepStrictEqual(onlyObject(cleared), { ...ids(other), parked: false })
      assert.deepStrictEqual(yield* clear(other.credential_id, other.account_id), cleared)
      assert.deepStrictEqual(yield* parked, { [one.credential_id]: [1, true], [other.credential_id]: [1, false] })

      const replace = (key: string) =>
        Effect.promise(async () => {
          const patched = await fetch(`${service.url}/api/v1/byok/${one.credential_id}`, {
            method: "PATCH",
            headers: { authorization: `Bearer ${one.management_key}`, "content-type": "application/json" },
            body: JSON.stringify({ key })
          })
          return { status: patched.status, body: await patched.text() }
        })
      const wrapped = yield* replace(JSON.stringify({ api_key: plain }))
      assert.strictEqual(wrapped.status, 400)
      assert.include(wrapped.body, "must not hold the secret of the stored key, which is marked as leaked")
      assert.strictEqual((yield* replace(plain)).status, 200, "the stored key itself, whose mark stays")
      assert.deepStrictEqual(yield* parked, { [one.credential_id]: [1, true], [other.credential_id]: [1, false] })
      const patched = yield* replace(`${plain}-replaced`)
      assert.strictEqual(patched.status, 200)
      assert.deepStrictEqual(yield* parked, { [other.credential_id]: [1, false] })
      const [again] = (yield* search(`${plain}-replaced`)).found
      assert.deepStrictEqual([again?.["key_version"], again?.["parked"]], [2, false])

      const acts = (yield* eventsIn(sql)).filter(({ action }) => /^credential\.(un)?park$/.test(action))
      assert.sameDeepMembers(
        acts.map(({ actor: _, ...act }): unknown => act),
        [
          { action: "credential.park", ...ids(one), key_version: 1 },
          { action: "credential.park", ...ids(other), key_version: 1 },
          { action: "credential.unpark", ...ids(other), key_version: 1 }
        ]
      )
      assert.isTrue(acts.every(({ actor }) => actor.kind === "cli"))
      const removed = yield* Effect.promise(() =>
        fetch(`${service.url}/api/v1/byok/${one.credential_id}`, {
          method: "DELETE",
          headers: { authorization: `Bearer ${one.management_key}` }
        })
      )
      assert.strictEqual(removed.status, 200)
      const left = sql`SELECT 1 FROM credential_parkings WHERE credential_id = ${one.credential_id}`
      assert.lengthOf(yield* left, 0)
      assert.deepStrictEqual(yield* clear(one.credential_id, one.account_id), unknown)
    })
  )

  it.live("names what does not open, with exit code 1 (L15)", () =>
    Effect.gen(function* () {
      const { find, made, sql } = yield* begin
      const [altered] = made
      if (altered === undefined) return assert.fail("nothing was made")
      yield* sql`UPDATE credentials SET disabled = true WHERE id = ${altered.credential_id}`
      const { code, stderr, stdout } = yield* find(plain, "--json")
      const { found, unopened } = JSON.parse(stdout) as Search
      assert.lengthOf(found, 1)
      const { account_id, credential_id, workspace_id } = altered
      const reason = "the credential or its sealed key was altered"
      assert.deepStrictEqual(unopened, [{ account_id, workspace_id, credential_id, key_version: 1, reason }])
      assert.match(stderr, /\nCredentials that may hold it and did not open: 1\.\n$/)
      assert.strictEqual(code, 1)
      const text = yield* find(plain)
      assert.include(text.stdout, `unopened  ${credential_id}  account: ${account_id}: ${reason}\n`)
    })
  )

  it.live("refuses text that it cannot search for, and works without a keyring only to clear", () =>
    Effect.gen(function* () {
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
      const refused: ReadonlyArray<readonly [input: string | Buffer, flags: ReadonlyArray<string>, sentence: string]> =
        [
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
      for (const mode of [0o400, 0o600]) {
        const { stdout } = yield* find("", "--json", "--file", file(`private-${mode}`, mode))
        assert.deepStrictEqual<unknown>(JSON.parse(stdout), {
          searched: 0,
          opened: 0,
          found: [],
          unopened: [],
          unopened_total: 0
        })
      }
      assert.strictEqual((yield* find("k".repeat(256 * 1024))).code, 0, "as much as a body may have")

      const without = yield* runCommand(["leak", "find"], { DATABASE_URL }, plain)
      assert.strictEqual(without.code, 1)
      assert.match(without.stderr, /^BYOK_KEYRING_FILE or BYOK_KEYRING must be set/)
      const id = "01935f6a-0000-7000-8000-000000000000"
      const unknown = yield* runCommand(["leak", "clear", id, "--account", id], { DATABASE_URL })
      assert.deepStrictEqual(unknown, { code: 1, stdout: "", stderr: "There is no such credential.\n" })
    })
  )
})
