import { execFileSync } from "node:child_process"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync
} from "node:fs"
import { createRequire } from "node:module"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Duration, Effect, Redacted } from "effect"
import type { TokenSettings } from "../../../src/crypto/pkcs11/Token.ts"

const softHsmModule = ["/usr/lib/softhsm/libsofthsm2.so", "/usr/local/lib/softhsm/libsofthsm2.so"].find(existsSync)

const missing = () => {
  if (softHsmModule === undefined) return "SoftHSM 2 is not installed"
  try {
    execFileSync("softhsm2-util", ["--version"])
    createRequire(import.meta.url)("pkcs11js")
    return undefined
  } catch {
    return "softhsm2-util or pkcs11js does not run here"
  }
}

/** Why tests that need SoftHSM cannot run here; undefined if they can. */
export const withoutSoftHsm = missing()
if (withoutSoftHsm !== undefined) console.warn(`Tests of keys on a PKCS#11 token are skipped: ${withoutSoftHsm}.`)

export const pin = "canary-pin-7291"

/** A program that makes keys in a separate process: this process must not load the module. */
const program = `
const p = require(process.argv[1])
const [, , module, label, pin, ...keys] = process.argv
const t = new p.PKCS11()
t.load(module)
t.C_Initialize()
const slot = t.C_GetSlotList(true).find((slot) => t.C_GetTokenInfo(slot).label.trimEnd() === label)
const session = t.C_OpenSession(slot, p.CKF_SERIAL_SESSION | p.CKF_RW_SESSION)
t.C_Login(session, p.CKU_USER, pin)
for (const { id, bytes, length = 32, sensitive = true, extractable = false, remove = false, setPin } of keys.map((key) => JSON.parse(key))) {
  if (setPin !== undefined) {
    t.C_SetPIN(session, pin, setPin)
    continue
  }
  if (remove) {
    t.C_FindObjectsInit(session, [{ type: p.CKA_LABEL, value: id }])
    const found = t.C_FindObjects(session, 9)
    t.C_FindObjectsFinal(session)
    for (const key of found) t.C_DestroyObject(session, key)
    continue
  }
  const template = [
    { type: p.CKA_CLASS, value: p.CKO_SECRET_KEY },
    { type: p.CKA_KEY_TYPE, value: p.CKK_AES },
    { type: p.CKA_LABEL, value: id },
    { type: p.CKA_TOKEN, value: true },
    { type: p.CKA_PRIVATE, value: true },
    { type: p.CKA_SENSITIVE, value: sensitive },
    { type: p.CKA_EXTRACTABLE, value: extractable },
    { type: p.CKA_ENCRYPT, value: true },
    { type: p.CKA_DECRYPT, value: true }
  ]
  if (bytes === undefined) t.C_GenerateKey(session, { mechanism: p.CKM_AES_KEY_GEN }, [...template, { type: p.CKA_VALUE_LEN, value: length }])
  else t.C_CreateObject(session, [...template, { type: p.CKA_VALUE, value: Buffer.from(bytes, "hex") }])
}
t.C_Finalize()
`

export interface TokenKey {
  readonly id: string
  /** The bytes of the key in hexadecimal; by default, the token generates one. */
  readonly bytes?: string
  readonly length?: 16 | 32
  readonly sensitive?: boolean
  readonly extractable?: boolean
  /** Removes the key of this id instead of making one. */
  readonly remove?: boolean
  /** Changes the user's PIN to this one instead of making a key. */
  readonly setPin?: string
}

/** A directory of tokens for SoftHSM in this process and its children, removed when the scope closes. */
export const softHsm = Effect.acquireRelease(
  Effect.sync(() => {
    const root = mkdtempSync(join(tmpdir(), "byok-token-"))
    const directory = join(root, "tokens")
    const conf = join(root, "softhsm2.conf")
    mkdirSync(directory)
    writeFileSync(conf, `directories.tokendir = ${directory}\nobjectstore.backend = file\nlog.level = ERROR\n`)
    process.env["SOFTHSM2_CONF"] = conf
    return { root, directory, conf, module: softHsmModule ?? "" }
  }),
  ({ root }) => Effect.sync(() => rmSync(root, { recursive: true, force: true }))
)

export type SoftHsm = Effect.Success<typeof softHsm> & { readonly pin?: string }

const run = (hsm: SoftHsm, command: string, args: ReadonlyArray<string>) =>
  execFileSync(command, args, { env: { ...process.env, SOFTHSM2_CONF: hsm.conf }, stdio: ["ignore", "ignore", "pipe"] })

export const addKeys = (hsm: SoftHsm, token: string, ...keys: ReadonlyArray<TokenKey>) =>
  Effect.sync(() => {
    const pkcs11js = createRequire(import.meta.url).resolve("pkcs11js")
    const described = keys.map((key) => JSON.stringify(key))
    run(hsm, process.execPath, ["-e", program, pkcs11js, hsm.module, token, hsm.pin ?? pin, ...described])
  })

/** Adds a token with keys. */
export const addToken = Effect.fnUntraced(function* (hsm: SoftHsm, token: string, ...keys: ReadonlyArray<TokenKey>) {
  run(hsm, "softhsm2-util", ["--init-token", "--free", "--label", token, "--so-pin", "canary-so-pin", "--pin", pin])
  yield* addKeys(hsm, token, ...keys)
})

/**
 * Makes processes that `opening` starts notice a new PIN. Unlike other tokens, SoftHSM accepts the old PIN in processes that ran
 * before the change: after `changed`, they log in with a wrong PIN, so that it is refused.
 */
export const noticingNewPin = <A, E, R>(hsm: SoftHsm, opening: Effect.Effect<A, E, R>) => {
  const preload = join(hsm.root, "noticing-new-pin.cjs")
  const flag = join(hsm.root, "pin-changed")
  const changed = Effect.sync(() => writeFileSync(flag, ""))
  return Effect.acquireUseRelease(
    Effect.sync(() => {
      writeFileSync(
        preload,
        `const { PKCS11 } = require(${JSON.stringify(createRequire(import.meta.url).resolve("pkcs11js"))})
const login = PKCS11.prototype.C_Login
PKCS11.prototype.C_Login = function (session, user, pin) {
  return login.call(this, session, user, require("node:fs").existsSync(${JSON.stringify(flag)}) ? "not-" + pin : pin)
}`
      )
      const before = process.env["NODE_OPTIONS"] ?? ""
      process.env["NODE_OPTIONS"] = `${before} --require=${preload}`
      return before
    }),
    () => Effect.map(opening, (opened) => ({ opened, changed })),
    (before) =>
      Effect.sync(() => {
        process.env["NODE_OPTIONS"] = before
      })
  )
}

/** How many times a PIN was tried on the only token: SoftHSM writes its flags with every attempt, and counts its writes. */
export const attempts = ({ directory }: SoftHsm) =>
  Effect.sync(() => {
    const [token = ""] = readdirSync(directory)
    return Number(readFileSync(join(directory, token, "token.object")).readBigUInt64BE(0))
  })

/** Hides all tokens while the effect runs. */
export const withoutTokens = <A, E, R>({ directory }: SoftHsm, effect: Effect.Effect<A, E, R>) =>
  Effect.acquireUseRelease(
    Effect.sync(() => renameSync(directory, `${directory}-gone`)),
    () => effect,
    () => Effect.sync(() => renameSync(`${directory}-gone`, directory))
  )

/** Settings that open the keys of a token, with a deadline for slow machines. */
export const tokenSettings = (hsm: SoftHsm, token: string, ...kek_ids: ReadonlyArray<string>): TokenSettings => ({
  module: hsm.module,
  token,
  pin: Redacted.make(pin),
  kek_ids,
  deadline: Duration.seconds(10)
})
