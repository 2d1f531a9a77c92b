import { closeSync, openSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Writable } from "node:stream"
import { Effect, type Scope } from "effect"
import { generateKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { CommandLine, textIn } from "../support/process/CommandLine.ts"
import { sha256 } from "../support/keys/issuedKey.ts"
import { assert, layerLive } from "../support/it.ts"
import { runShell } from "../support/process/runByok.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const keyring = generateKeyring(new Date())

/** Makes descriptor 3 a pipe whose reader has left. */
const unread = "mkfifo pipe\n: <pipe &\nexec 3>pipe\nwait"

const shell = Effect.fnUntraced(function* (commands: string) {
  const { databaseUrl } = yield* CommandLine
  const variables = { DATABASE_URL: databaseUrl, BYOK_KEYRING: keyring }
  return yield* runShell(commands, { cwd: yield* temporaryDirectory, variables })
})

const failed = (stderr: string) => ({ code: 1, stdout: "", stderr })
const cannot = "Standard output cannot be written"

/** A file that no text fits into. */
const full = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => openSync("/dev/full", "w")),
    (fd) => Effect.sync(() => closeSync(fd))
  ),
  (fd) => Object.assign(new Writable(), { fd })
)

/** A pipe whose reader has gone away. */
const unreadPipe = Effect.sync(
  () => new Writable({ write: (_part, _encoding, written) => written(Object.assign(new Error(), { code: "EPIPE" })) })
)

/** Runs a command in this process that writes to such a stream. */
const writingTo = Effect.fnUntraced(function* (stream: Effect.Effect<Writable, never, Scope.Scope>, args: string) {
  const { databaseUrl } = yield* CommandLine
  const variables = { DATABASE_URL: databaseUrl, BYOK_KEYRING: keyring }
  return yield* runCommand(args.split(" "), variables, "", yield* stream)
}, Effect.scoped)

layerLive(CommandLine.layer)("output that cannot be written (F14)", (it) => {
  it.effect.each(["--help", "--version", "keyring generate", "audit verify --json", "audit export"])(
    "byok %s, if its output cannot be written, exits with 1 and one sentence on standard error",
    function* (args) {
      const { run } = yield* CommandLine
      if (args === "audit export") yield* run("account", "create", "--name", "Acme")
      assert.deepStrictEqual(yield* writingTo(full, args), failed(`${cannot} (ENOSPC).\n`))
    }
  )

  it.effect("byok --help in a separate process exits with 1 and one sentence if the disk is full", function* () {
    assert.deepStrictEqual(yield* shell("byok --help >/dev/full"), failed(`${cannot} (ENOSPC).\n`))
  })

  it.effect.each(["", " --json"])(
    "byok account create%s names the new account on standard error if its output is lost",
    function* (json) {
      const { run, sql } = yield* CommandLine
      const lost = yield* writingTo(full, `account create --name Lost${json}`)
      const [account] = yield* sql<{ id: string }>`SELECT id FROM accounts ORDER BY id DESC LIMIT 1`
      const issue = `api-key issue --account ${account?.id} --name N --management`
      const made = `account ${account?.id} was created, and \`byok ${issue}\` issues another key`
      assert.deepStrictEqual(lost, failed(`${cannot} (ENOSPC): ${made}.\n`))
      assert.strictEqual((yield* run(...issue.split(" "))).code, 0)
    }
  )

  it.effect("byok api-key issue says how to revoke the new key if its output cannot be written", function* () {
    const { run, runJson, sql } = yield* CommandLine
    const account_id = textIn(yield* runJson("account", "create", "--name", "Acme"), "account_id")
    const lost = yield* writingTo(full, `api-key issue --account ${account_id} --name lost`)
    const [key] = yield* sql<{ hash: string }>`SELECT encode(hash, 'hex') AS hash FROM api_keys WHERE name = 'lost'`
    const made = `a key was issued, and \`byok api-key revoke ${key?.hash}\` revokes it`
    assert.deepStrictEqual(lost, failed(`${cannot} (ENOSPC): ${made}.\n`))
    assert.strictEqual((yield* run("api-key", "revoke", key?.hash ?? "")).code, 0)
  })

  it.effect.each([
    ["full", full, "ENOSPC"],
    ["unread", unreadPipe, "EPIPE"]
  ] as const)("byok credential import says how much was imported if its output is %s", function* ([, stream, code]) {
    const { runJson } = yield* CommandLine
    const account_id = textIn(yield* runJson("account", "create", "--name", "Acme"), "account_id")
    const file = join(yield* temporaryDirectory, "keys.jsonl")
    writeFileSync(file, '{"provider":"groq","key":"fake-key"}', { mode: 0o600 })
    const lost = yield* writingTo(stream, `credential import ${file} --account ${account_id}`)
    const done = "imported 1, imported before 0, refused 0; run it again"
    assert.deepStrictEqual(lost, failed(`${cannot} (${code}): ${done}.\n`))
  })

  it.effect("byok workspace list exits with 1 if its output file has room for only a part", function* () {
    const { runJson, sql } = yield* CommandLine
    const account_id = textIn(yield* runJson("account", "create", "--name", "Acme"), "account_id")
    yield* sql`
        INSERT INTO workspaces (id, account_id, name, is_default, created_at)
        SELECT gen_random_uuid(), ${account_id}, repeat('n', 255), false, now() FROM generate_series(1, 4)`
    const list = `byok workspace list --account ${account_id}`
    const { stderr, stdout } = yield* shell(`ulimit -f 1; ${list} >out || echo "exit $?"; wc -c <out`)
    assert.strictEqual(stderr, `${cannot} (EFBIG).\n`)
    assert.match(stdout, /^exit 1\n *(512|1024)\n$/)
  })

  it.effect("byok --help exits with 0, without an error, if the reader of its output has left", function* () {
    assert.deepStrictEqual(yield* shell(`${unread}\nbyok --help >&3`), { code: 0, stdout: "", stderr: "" })
  })

  it.effect("byok account create exits with 1 if the reader of its new key has left", function* () {
    const { stderr, ...rest } = yield* writingTo(unreadPipe, "account create --name Unread")
    assert.deepStrictEqual(rest, { code: 1, stdout: "" })
    assert.match(stderr, /^Standard output cannot be written \(EPIPE\): account \S{36} was created, .*\.\n$/)
  })

  it.effect("output to a writable file or pipe is complete, with exit code 0 (control)", function* () {
    const { sql } = yield* CommandLine
    const { stderr, stdout } = yield* shell(
      "byok account create --name Kept --json >out; echo $?; cat out; byok --version | cat"
    )
    assert.strictEqual(stderr, "")
    const [code, made = "", version] = stdout.split("\n")
    assert.deepStrictEqual([code, version], ["0", "byok v1.0.0"])
    const key = textIn(JSON.parse(made) as Record<string, unknown>, "management_key")
    const found = yield* sql`SELECT 1 FROM api_keys WHERE hash = decode(${sha256(key)}, 'hex')`
    assert.lengthOf(found, 1)
  })
})
