import { chmodSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Result, type Scope } from "effect"
import { adminClient, migratedDatabase } from "../support/database/freshDatabase.ts"
import { type CloudRequest, crc32c, isSignedBy, makeBox, serveAs, serveAt } from "../support/keys/FakeCloud.ts"
import { parsed } from "../support/keys/keyrings.ts"
import { installedPrograms } from "../support/process/installedPrograms.ts"
import { runShell } from "../support/process/runByok.ts"
import { runProgram } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const page = readFileSync(join(import.meta.dirname, "../../docs/keys.md"), "utf8")
const [, section = ""] = /^## The keyring from a command\n(.*?)^## /ms.exec(page) ?? []
const [, ...parts] = section.split(/^### /m)

/** A recipe as docs/keys.md has it. */
interface Recipe {
  readonly text: string
  /** Commands that store the keyring. */
  readonly commands: string
  /** The scripts that it has its reader write, by name. */
  readonly scripts: ReadonlyArray<readonly [name: string, text: string]>
  readonly settings: Readonly<Record<string, string>>
}

const recipes = new Map(
  parts.map((part): [string, Recipe] => {
    const [title = "", ...lines] = part.split("\n")
    const text = lines.join("\n")
    const blocks = Array.from(text.matchAll(/(?:[Ii]n `([\w-]+)`:\n\n)?^```sh\n(.*?)^```/gms))
    const scripts = blocks.flatMap(([, name, script = ""]) => (name === undefined ? [] : [[name, script] as const]))
    const commands = blocks.flatMap(([, name, script = ""]) => (name === undefined ? [script] : [])).join("")
    const ini = Array.from(text.matchAll(/^# (BYOK_\w+)=(.*)$/gm), ([, name = "", value = ""]) => [name, value])
    return [title, { text, commands, scripts, settings: Object.fromEntries(ini) as Record<string, string> }]
  })
)

type Variables = Readonly<Record<string, string>>

/** What a recipe needs here. `begin` returns variables for its commands, which its setting names as well. */
interface Row {
  readonly title: string
  readonly programs: ReadonlyArray<string>
  readonly begin?: (directory: string) => Effect.Effect<Variables, unknown, Scope.Scope>
  /** A change of the setting, and a part of the sentence that refuses it. */
  readonly refused?: readonly [from: string, to: string, says: RegExp]
}

const plain = makeBox()

const aws = { AWS_DEFAULT_REGION: "eu-central-1", AWS_ACCESS_KEY_ID: "AKIAFAKE", AWS_SECRET_ACCESS_KEY: "a-secret" }

const kms = (request: CloudRequest) => {
  if (request.url.hostname !== "kms.eu-central-1.amazonaws.com") return 404
  if (!isSignedBy(request, aws.AWS_ACCESS_KEY_ID, aws.AWS_SECRET_ACCESS_KEY)) return 403
  const asked = JSON.parse(request.body) as Record<string, never>
  const bound = JSON.stringify(asked["EncryptionContext"])
  if (request.headers["x-amz-target"] === "TrentService.Encrypt") {
    if (asked["KeyId"] !== "alias/byok") return 400
    return { CiphertextBlob: plain.encrypt(asked["Plaintext"] ?? "", bound), KeyId: "byok" }
  }
  const Plaintext = plain.decrypt(asked["CiphertextBlob"] ?? "", bound)
  return Plaintext === undefined ? 400 : { Plaintext, KeyId: "byok" }
}

const base64 = (text: string) => Buffer.from(text, "base64")

const googleKms = ({ body, headers, url }: CloudRequest) => {
  if (headers.authorization !== "Bearer a-google-token") return 401
  const key = "projects/a-project/locations/global/keyRings/byok/cryptoKeys/keyring"
  const asked = JSON.parse(body) as { readonly plaintext?: string; readonly ciphertext?: string } & Variables
  if (url.pathname === `/v1/${key}:encrypt` && asked.plaintext !== undefined) {
    if (asked["plaintextCrc32c"] !== crc32c(base64(asked.plaintext))) return 400
    const ciphertext = plain.encrypt(asked.plaintext, key)
    const verified = { verifiedPlaintextCrc32c: true, verifiedAdditionalAuthenticatedDataCrc32c: true }
    return { name: `${key}/cryptoKeyVersions/1`, ciphertext, ciphertextCrc32c: crc32c(base64(ciphertext)), ...verified }
  }
  if (url.pathname !== `/v1/${key}:decrypt` || asked.ciphertext === undefined) return 404
  if (asked["ciphertextCrc32c"] !== crc32c(base64(asked.ciphertext))) return 400
  const plaintext = plain.decrypt(asked.ciphertext, key)
  return plaintext === undefined ? 400 : { plaintext, plaintextCrc32c: crc32c(base64(plaintext)) }
}

const azure =
  (keyring: string) =>
  ({ headers, url }: CloudRequest) => {
    if (url.hostname === "169.254.169.254") {
      const asks = headers["metadata"] === "true" && url.searchParams.get("resource") === "https://vault.azure.net"
      return asks ? { access_token: "an-azure-token" } : 400
    }
    if (url.href !== "https://byok.vault.azure.net/secrets/keyring?api-version=7.4") return 404
    return headers.authorization === "Bearer an-azure-token" ? { value: keyring } : 401
  }

const transit = ({ body, headers, method, url }: CloudRequest) => {
  if (headers["x-vault-token"] !== "a-vault-token") return 403
  if (method !== "POST") return 405
  const asked = JSON.parse(body) as { readonly plaintext?: string; readonly ciphertext?: string }
  if (url.href === "https://vault.internal:8200/v1/transit/encrypt/byok" && asked.plaintext !== undefined) {
    return { data: { ciphertext: `vault:v1:${plain.encrypt(asked.plaintext, "")}` } }
  }
  if (url.href !== "https://vault.internal:8200/v1/transit/decrypt/byok") return 404
  const plaintext = plain.decrypt((asked.ciphertext ?? "").replace("vault:v1:", ""), "")
  return plaintext === undefined ? 400 : { data: { plaintext } }
}

/** The variables with which curl and the AWS CLI reach a service through its proxy. */
const throughProxy = (url: string, certificate: string) => ({
  HTTPS_PROXY: url,
  http_proxy: url,
  CURL_CA_BUNDLE: certificate,
  AWS_CA_BUNDLE: certificate
})

const rows: ReadonlyArray<Row> = [
  {
    title: "age",
    programs: ["age", "age-keygen"],
    refused: ["keyring.age", "identity", /age ended with exit code 1/]
  },
  {
    title: "AWS KMS",
    programs: ["aws", "base64"],
    begin: (directory) => {
      const certificate = join(directory, "kms.pem")
      return Effect.map(serveAs("kms.eu-central-1.amazonaws.com", certificate, kms), (url) => ({
        ...throughProxy(url, certificate),
        ...aws
      }))
    },
    refused: ["use=byok", "use=another", /aws ended with exit code \d+: /]
  },
  {
    title: "Google Cloud KMS",
    programs: ["gcloud"],
    begin: (directory) =>
      Effect.map(serveAt(googleKms), (url) => ({
        CLOUDSDK_CONFIG: join(directory, "gcloud"),
        CLOUDSDK_CORE_PROJECT: "a-project",
        CLOUDSDK_AUTH_ACCESS_TOKEN: "a-google-token",
        CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDKMS: `${url}/`,
        CLOUDSDK_CORE_DISABLE_USAGE_REPORTING: "true"
      })),
    refused: ["--key=keyring", "--key=another", /gcloud ended with exit code 1/]
  },
  {
    title: "Azure Key Vault",
    programs: ["curl", "jq"],
    begin: (directory) => {
      const certificate = join(directory, "azure.pem")
      const keyring = readFileSync(join(directory, "../generated"), "utf8")
      return Effect.map(serveAs("byok.vault.azure.net", certificate, azure(keyring)), (url) =>
        throughProxy(url, certificate)
      )
    }
  },
  {
    title: "HashiCorp Vault and OpenBao",
    programs: ["curl", "jq", "base64"],
    begin: (directory) => {
      writeFileSync(join(directory, "token"), "X-Vault-Token: a-vault-token\n", { mode: 0o600 })
      const certificate = join(directory, "vault.pem")
      return Effect.map(serveAs("vault.internal", certificate, transit), (url) => throughProxy(url, certificate))
    }
  },
  {
    title: "systemd credentials",
    programs: ["systemd-creds"],
    refused: ["--name=keyring", "--name=another", /systemd-creds ended/]
  },
  {
    title: "A TPM",
    programs: ["swtpm", "tpm2_create", "age"],
    begin: (directory) => startTpm(join(directory, "../tpm"))
  },
  {
    title: "A hardware security module",
    programs: ["pkcs11-tool", "softhsm2-util", "openssl"],
    begin: Effect.fnUntraced(function* (directory) {
      const tokens = yield* temporaryDirectory
      const SOFTHSM2_CONF = join(tokens, "softhsm2.conf")
      writeFileSync(SOFTHSM2_CONF, `directories.tokendir = ${tokens}\n`)
      const variables = { SOFTHSM2_CONF, HSM_PIN: "1234" }
      const made = yield* runProgram(
        "softhsm2-util",
        ["--init-token", "--free", "--label", "byok", "--pin", "1234", "--so-pin", "1234"],
        { cwd: directory, variables }
      )
      assert.strictEqual(made.code, 0, made.stderr)
      return variables
    }),
    refused: ["--id 01", "--id 02", /pkcs11-tool ended with exit code 1/]
  }
]

/** Starts a TPM in software. Its programs flush objects after each call, as the resource manager of a kernel does. */
const startTpm = Effect.fnUntraced(function* (directory: string) {
  const { code, stderr } = yield* runProgram("/bin/sh", [
    "-c",
    `mkdir -p ${directory} && PATH=$PATH:/usr/sbin swtpm socket --tpm2 --tpmstate dir=${directory} --daemon \
      --ctrl type=unixio,path=${directory}/sock.ctrl --server type=unixio,path=${directory}/sock \
      --flags not-need-init,startup-clear --pid file=${directory}/pid`
  ])
  assert.strictEqual(code, 0, stderr)
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => process.kill(Number(readFileSync(join(directory, "pid"), "utf8"))))
  )
  const bin = join(directory, "bin")
  const TPM2TOOLS_TCTI = `swtpm:path=${directory}/sock`
  const wrapper = `#!/bin/sh\nPATH=$(echo "$PATH" | sed 's#^[^:]*:##')\n"$(basename "$0")" "$@" && tpm2_flushcontext -t\n`
  yield* runProgram("mkdir", [bin])
  for (const name of ["tpm2_createprimary", "tpm2_create", "tpm2_load", "tpm2_evictcontrol"]) {
    writeFileSync(join(bin, name), wrapper)
    chmodSync(join(bin, name), 0o755)
  }
  return { TPM2TOOLS_TCTI, PATH: `${bin}:${process.env["PATH"] ?? ""}` }
})

/** Why a recipe is not run here, if it is not. */
const missingFor = ({ programs, title }: Row) => {
  const found = Effect.runSync(Effect.result(installedPrograms(programs)))
  if (Result.isFailure(found)) return found.failure.why.replace("; see DRILL_PACKAGES", "")
  return title === "systemd credentials" && process.getuid?.() !== 0
    ? "only root may use the key of the machine"
    : undefined
}

describe("the recipes of docs/keys.md for keyrings from a command", () => {
  it("are each run here, or say that they were not run", () => {
    const unrun = Array.from(recipes).filter(([title]) => !rows.some((row) => row.title === title))
    assert.deepStrictEqual(
      unrun.filter(([, { text }]) => !/^\n[^\n]*not run\.\n/.test(text)).map(([title]) => title),
      []
    )
    assert.deepStrictEqual(
      rows.filter(({ title }) => !recipes.has(title)).map(({ title }) => title),
      []
    )
    assert.isAtLeast(recipes.size, 9)
  })

  for (const row of rows) {
    const why = missingFor(row)
    const title = `the recipe "${row.title}" keeps a keyring encrypted, and gives it to byok`
    it.live.skipIf(why !== undefined)(
      why === undefined ? title : `${title} (skipped: ${why})`,
      Effect.fnUntraced(function* () {
        const recipe = recipes.get(row.title) ?? assert.fail("no such recipe")
        const place = yield* temporaryDirectory
        const cwd = join(place, "keys")
        const generated = join(place, "generated")
        const DATABASE_URL = yield* migratedDatabase
        yield* runProgram("mkdir", [cwd])
        const made = yield* runShell(`byok keyring generate > ${generated}`, { cwd })
        assert.strictEqual(made.code, 0, made.stderr)
        const keyring = readFileSync(generated, "utf8").trim()
        for (const [name, text] of recipe.scripts) writeFileSync(join(cwd, name), text)
        const own = row.begin === undefined ? {} : yield* row.begin(cwd)
        const home = { HOME: process.env["HOME"] ?? cwd }

        // The command that makes a keyring gives the one that is looked for below.
        const stored = yield* runShell(recipe.commands.replaceAll("byok keyring generate", `cat ${generated}`), {
          cwd,
          variables: { ...home, ...own }
        })
        assert.strictEqual(stored.code, 0, stored.stderr)
        const secret = keyring.split(":")[1] ?? ""
        for (const file of readdirSync(cwd, { recursive: true, withFileTypes: true })) {
          if (file.isFile()) assert.notInclude(readFileSync(join(file.parentPath, file.name), "latin1"), secret)
        }

        const named = recipe.settings["BYOK_KEYRING_COMMAND_ENV"] ?? ""
        const status = (settings: Variables) =>
          runShell("byok keyring status --json", {
            cwd,
            variables: {
              ...{ ...home, ...own, DATABASE_URL, ...settings },
              BYOK_KEYRING_COMMAND_ENV: [named, ...Object.keys(own), "PATH"].join(" ").trim()
            }
          })
        const shown = yield* status(recipe.settings)
        assert.strictEqual(shown.code, 0, shown.stderr)
        const sql = yield* adminClient(DATABASE_URL)
        const registered = yield* sql<{
          kek_id: string
          check_value: Uint8Array
        }>`SELECT id AS kek_id, check_value FROM keks`
        const { check_value, kek_id } = parsed(keyring).primary
        assert.deepStrictEqual(
          registered.map((one) => [one.kek_id, Buffer.from(one.check_value).toString("hex")]),
          [[kek_id, Buffer.from(check_value).toString("hex")]]
        )

        if (row.refused === undefined) return
        const [from, to, says] = row.refused
        const { BYOK_KEYRING_COMMAND = "" } = recipe.settings
        assert.include(BYOK_KEYRING_COMMAND, from)
        const refused = yield* status({ BYOK_KEYRING_COMMAND: BYOK_KEYRING_COMMAND.replace(from, to) })
        assert.strictEqual(refused.code, 1)
        assert.match(refused.stderr, says)
        assert.notInclude(refused.stderr, secret)
      }),
      600_000
    )
  }
})
