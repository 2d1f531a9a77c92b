import { runCommand } from "../support/process/runCommand.ts"
import { assert, describe, it } from "../support/it.ts"

const uuid = "01935f6a-0000-7000-8000-000000000000"
const key = "byok_mk_canarycanarycanarycanarycanarycanarycanary"
const nameExpected = "--name must have 1 to 255 characters, none of them a control character."
const importExpected =
  'HASH must be the SHA-256 of the key, 64 lowercase hexadecimal characters: `printf %s "$KEY" | sha256sum` shows it.'
const hashExpected = "HASH must be the key's hash, 64 lowercase hexadecimal characters: `byok api-key list` shows it."
const accountExpected =
  "--yes must be given: the account is deleted for good, with its keys, workspaces and credentials."
const workspaceExpected =
  "--yes must be given: a deleted workspace cannot be restored, and its credentials serve no request any more."
const auditExpected = "must be a hash, 64 lowercase hexadecimal characters."
const kekIdExpected = "must be 1 to 64 characters of A-Z a-z 0-9 . _ -."
const stateExpected = "--state must be one of active, failing, parked, disabled, leaked."
const group = `--account ${uuid} --workspace ${uuid} --provider groq`
const journalExpected = "--journal must be given when FILE is -: it makes it safe to run the import again."
const explain = `explain --account ${uuid} --model m`
const slugsExpected = "--provider must name each provider once."
const planHashExpected = "must be 64 lowercase hexadecimal characters."

describe("command-line parsing, before any database is opened (D40)", () => {
  it.live.each<readonly [name: string, args: string, says: RegExp]>([
    ["an unknown command", "acount create", /Unknown subcommand "…" for "byok"\n\n {2}.*\n {4}account/],
    ["a command that needs another one", "account", /create +Create an account/],
    ["a flag that is missing", `workspace create --account ${uuid}`, /Missing required flag: --name/],
    ["an unknown flag", `api-key issue --account ${uuid} --name n --managment`, /--managment/]
  ])("answers %s with help and exit code 2", function* ([, args, says]) {
    const { code, stderr, stdout } = yield* runCommand(args.split(" "))
    assert.strictEqual(code, 2)
    assert.match(stdout + stderr, says)
    assert.match(stdout + stderr, /USAGE\n {2}byok /)
  })

  it.live.each<readonly [name: string, args: string, sentence: string]>([
    ["an account that is not a UUID", "workspace list --account 42", "--account must be a UUID."],
    ["a workspace that is not a UUID", "workspace delete 42 --yes", "ID must be a UUID."],
    ["a name that is too long", `account create --name ${"n".repeat(256)}`, nameExpected],
    ["a name that is empty", "account create --name=", nameExpected],
    ["an account's name with an escape sequence (F15)", "account create --name=a\u001b[2J", nameExpected],
    ["a workspace's name of two lines (F15)", `workspace create --account ${uuid} --name=a\nb`, nameExpected],
    ["a key's name with a C1 control (F15)", `api-key issue --account ${uuid} --name=a\u009b`, nameExpected],
    ["a key where api-key import expects its hash", `api-key import ${key} --account ${uuid} --name n`, importExpected],
    ["a key where --account expects an id", `api-key issue --name n --account ${key}`, "--account must be a UUID."],
    ["a key where api-key revoke expects its hash", `api-key revoke ${key} --json`, hashExpected],
    ["an account without --yes (L13)", `account delete ${uuid}`, accountExpected],
    ["a deleted account that is not a UUID", "account delete canary --yes", "ID must be a UUID."],
    ["a workspace without --yes (C5)", `workspace delete ${uuid}`, workspaceExpected],
    ["a hash to expect", "audit verify --expect canary", `--expect ${auditExpected}`],
    ["a hash to begin after", "audit verify --from canary", `--from ${auditExpected}`],
    ["an event", "audit export --after=-1", "--after must be a whole number: the `seq` of an event."],
    ["a rate", "keyring rewrap --rate=1.5", "--rate must be a whole number from 1 to 1000000."],
    ["a batch", "keyring rewrap --batch=10001", "--batch must be a whole number from 1 to 10000."],
    ["the id of a new key", "keyring add --id canary/1", `--id ${kekIdExpected}`],
    ["the id of a key", "keyring promote canary:1", `ID ${kekIdExpected}`],
    [
      "a key where leak clear expects the id of a credential",
      `leak clear ${key} --account ${uuid}`,
      "ID must be a UUID."
    ],
    ["a credential", `credential show canary --account ${uuid}`, "ID must be a UUID."],
    ["a state", `credential list --account ${uuid} --state canary`, stateExpected],
    ["a provider", `credential list --account ${uuid} --provider canary`, "--provider must be a known provider slug."],
    ["one ID twice", `credential reorder ${uuid} ${uuid} ${group}`, "Each ID must be given once."],
    ["an import of standard input", `credential import - --account ${uuid}`, journalExpected],
    ["a plan for a provider twice", `${explain} --provider openai,openai`, slugsExpected],
    [
      "a plan for another provider",
      `${explain} --provider xai,opnai`,
      "--provider must be a known provider slug; the nearest is openai."
    ],
    ["a plan for a key", `${explain} --provider xai --api-key-hash canary`, `--api-key-hash ${planHashExpected}`],
    ["a plan of a workspace", `${explain} --provider xai --workspace canary`, "--workspace must be a UUID."]
  ])(
    "refuses wrong arguments with what is expected, the help and exit code 2, not echoing them: %s",
    function* ([, args, sentence]) {
      const { code, stderr, stdout } = yield* runCommand(args.split(" "))
      assert.deepStrictEqual({ code, stdout }, { code: 2, stdout: "" })
      const [error, help] = stderr.split("\n\nDESCRIPTION\n")
      assert.strictEqual(error, `ERROR\n  ${sentence}`)
      assert.match(help ?? "", /^.*\n\nUSAGE\n {2}byok /)
      assert.notInclude(stderr, "canary")
    }
  )

  it.live.each([
    ["an argument too many", `api-key revoke HASH ${key}`],
    ["an argument of a command that reads it from standard input", `leak find ${key}`],
    ["a command", `api-key ${key}`],
    ["a short argument too many", "leak find sk-canary-0123456"],
    ["a short command", "sk-canary-0123456"],
    ["a flag", "api-key revoke --Xcanary_0123456"],
    ["a flag with a value", "api-key revoke --Xcanary+/=canary"],
    ["the level of the log", "account list --log-level sk-canary-0123456"]
  ])("exits with 2 and does not echo a key given as %s", function* ([, args]) {
    const { code, stderr, stdout } = yield* runCommand((args ?? "").split(" "))
    assert.strictEqual(code, 2)
    assert.notInclude(stdout + stderr, "canary")
  })

  it.live("shows a key that begins with a hyphen as one unknown flag, not letter by letter", function* () {
    const { stderr } = yield* runCommand(["api-key", "revoke", "-Xcanary_0123456"])
    assert.match(stderr, /^ERROR\n {2}Unrecognized flag: … in command byok api-key revoke\n\n/)
  })

  it.live("prints on --help which page lists the settings (C9)", function* () {
    const { code, stdout } = yield* runCommand(["--help"])
    assert.strictEqual(code, 0)
    assert.match(stdout, /DATABASE_URL and BYOK_KEYRING_FILE: docs\/settings\.md lists/)
    const flags = stdout.slice(stdout.indexOf("GLOBAL FLAGS")).match(/--[a-z-]+/g)
    assert.deepStrictEqual(flags, ["--help", "--version", "--completions"])
  })

  it.live("marks required flags in the help", function* () {
    const { stdout } = yield* runCommand(["workspace", "create", "--help"])
    assert.match(stdout, /\n {2}--account string +Id of the account \(required\)\n/)
    assert.notMatch(stdout, /--json .*\(required\)/)
    assert.match((yield* runCommand(["account", "delete", "--help"])).stdout, /--yes .*\(required\)\n/)
  })

  it.live("prints help on wrong usage to standard error only, if --json is given", function* () {
    const { code, stderr, stdout } = yield* runCommand(["account", "create", "--json"])
    assert.strictEqual(code, 2)
    assert.match(stderr, /Missing required flag: --name/)
    assert.strictEqual(stdout, "")
  })
})
