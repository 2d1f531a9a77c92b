import { createHash } from "node:crypto"
import type { KekIdentity } from "../KeyEncryption.ts"
import {
  bytesOf,
  monotonicMillis,
  sameKeys,
  type TokenAnswer,
  type TokenRefusal,
  type TokenRequest,
  type TokenTarget
} from "./TokenMessages.ts"

// This child process calls the token, one call at a time. It ignores signals: the service closes the channel to end it.

const answer = (message: TokenAnswer, onSent?: () => void) => void process.send?.(message, undefined, undefined, onSent)

/** Exits once the answer is sent. Drops waiting requests, because each could log in again with a wrong PIN. */
const answerAndExit = (message: TokenAnswer) => {
  process.removeAllListeners("message")
  answer(message, () => process.exit())
}

/** The module, the token, its PIN or one of its keys is not as the settings say. */
class Refused extends Error {
  readonly refusal: TokenRefusal
  constructor(part: TokenRefusal["part"], message: string) {
    super(message)
    this.refusal = { part, message }
  }
}

/** The name of a PKCS#11 return code; "an error" for any other error, whose message may not be safe to report. */
const codeOf = (cause: unknown) =>
  cause instanceof Error && /^CKR_\w+$/.test(cause.message) ? cause.message : "an error"

const isTrue = (value: Buffer | undefined) => value?.[0] === 1
const numberOf = (value: Buffer | undefined) => (value === undefined ? undefined : value.readUInt32LE(0))

/**
 * The block whose ciphertext is a key's check value. Wrapping never encrypts it: GCM encrypts only the zero block and
 * blocks that end with a counter from 1 to 3.
 */
const checkBlock = (kek_id: string) =>
  Buffer.concat([createHash("sha256").update(`byok/kcv/${kek_id}`).digest().subarray(0, 12), Buffer.from("byok")])

const load = async ({ module }: TokenTarget) => {
  const { default: pkcs11 } = await import("pkcs11js").catch(() => {
    throw new Refused("module", "expected the optional package pkcs11js; found no build for this machine")
  })
  const token = new pkcs11.PKCS11()
  try {
    token.load(module)
  } catch {
    throw new Refused("module", "expected a PKCS#11 module that can be loaded")
  }
  token.C_Initialize({ flags: pkcs11.CKF_OS_LOCKING_OK ?? 2 })
  return { pkcs11, token }
}

/** Loads the module. `open` opens a session, logs in to the target's token and finds the target's keys. */
const connect = async (target: TokenTarget) => {
  const { pkcs11, token } = await load(target)
  const constant = (name: keyof typeof pkcs11) => {
    const value = pkcs11[name]
    if (typeof value !== "number") throw new Error("pkcs11js lacks a constant")
    return value
  }

  const slotOf = () => {
    const slots = token
      .C_GetSlotList(true)
      .filter((slot) => token.C_GetTokenInfo(slot).label.trimEnd() === target.token)
    const [slot] = slots
    if (slot !== undefined && slots.length === 1) return slot
    throw new Refused("token", `expected the label of exactly one token; found ${slots.length} with this label`)
  }

  const keyOf = (session: Buffer, kek_id: string, position: number) => {
    token.C_FindObjectsInit(session, [
      { type: constant("CKA_CLASS"), value: constant("CKO_SECRET_KEY") },
      { type: constant("CKA_LABEL"), value: kek_id }
    ])
    const objects = token.C_FindObjects(session, 2)
    token.C_FindObjectsFinal(session)
    const refuse = (actual: string) =>
      new Refused(
        "kek_ids",
        `key ${position}: expected one AES-256 key with this label, sensitive and not extractable; found ${actual}`
      )
    const [key] = objects
    if (key === undefined || objects.length > 1) throw refuse(key === undefined ? "none" : "several")
    const attributes = ["CKA_KEY_TYPE", "CKA_VALUE_LEN", "CKA_SENSITIVE", "CKA_EXTRACTABLE"] as const
    const [type, length, sensitive, extractable] = token
      .C_GetAttributeValue(
        session,
        key,
        attributes.map((name) => ({ type: constant(name) }))
      )
      .map(({ value }) => value)
    if (numberOf(type) !== constant("CKK_AES") || numberOf(length) !== 32) throw refuse("a key of another kind")
    if (!isTrue(sensitive) || isTrue(extractable)) throw refuse("a key that can be extracted")
    return key
  }

  const login = (session: Buffer) => {
    try {
      token.C_Login(session, constant("CKU_USER"), target.pin)
    } catch (cause) {
      const code = codeOf(cause)
      throw code.startsWith("CKR_PIN_")
        ? new Refused("pin", `expected the PIN of the token's user; found ${code}`)
        : cause
    }
  }

  const open = () => {
    const handle = token.C_OpenSession(slotOf(), constant("CKF_SERIAL_SESSION"))
    try {
      login(handle)
      const keys = new Map(target.kek_ids.map((kek_id, index) => [kek_id, keyOf(handle, kek_id, index + 1)]))
      const keks = Array.from(keys, ([kek_id, key]): KekIdentity => {
        token.C_EncryptInit(handle, { mechanism: constant("CKM_AES_ECB") }, key)
        return { kek_id, check_value: token.C_Encrypt(handle, checkBlock(kek_id), Buffer.alloc(16)) }
      })
      return { handle, keys, keks }
    } catch (cause) {
      close(handle)
      throw cause
    }
  }

  const close = (handle: Buffer) => {
    try {
      token.C_CloseSession(handle)
    } catch {
      // The session is already closed.
    }
  }

  return { constant, token, open, close }
}

type Connected = Awaited<ReturnType<typeof connect>>
type OpenSession = ReturnType<Connected["open"]>

/** The return codes of C_Decrypt for altered bytes. They also have other causes. */
const mayBeAltered =
  /^CKR_(GENERAL_ERROR|FUNCTION_FAILED|ENCRYPTED_DATA_\w+|AEAD_DECRYPT_FAILED|DATA_INVALID|SIGNATURE_INVALID)$/

/** A wrapped key does not decrypt: its bytes were altered, or the session is unusable. */
class NotDecrypted extends Error {}

/** Wraps or unwraps on the token, in an open session. */
const run = (
  { constant, token }: Connected,
  { handle, keys }: OpenSession,
  request: TokenRequest,
  input: Buffer
): Buffer => {
  const key = keys.get(request.kek_id)
  if (key === undefined) throw new Error("the process has no such key")
  const mechanism = {
    mechanism: constant("CKM_AES_GCM"),
    parameter: {
      type: constant("CK_PARAMS_AES_GCM_v240"),
      iv: Buffer.from(request.nonce),
      ivBits: 96,
      aad: Buffer.from(request.aad),
      tagBits: 128
    }
  }
  if (request.operation === "wrap") {
    token.C_EncryptInit(handle, mechanism, key)
    return token.C_Encrypt(handle, input, Buffer.alloc(input.length + 16))
  }
  token.C_DecryptInit(handle, mechanism, key)
  try {
    return token.C_Decrypt(handle, input, Buffer.alloc(input.length))
  } catch (cause) {
    throw mayBeAltered.test(codeOf(cause)) ? new NotDecrypted(codeOf(cause)) : cause
  }
}

const answerAndWipe = (id: number, output: Buffer) => {
  answer({ id, output })
  output.fill(0)
}

/**
 * Returns a handler that answers requests, unless their caller has stopped waiting. Retries a failed request once in a
 * new session: a wrapped key that still does not decrypt was altered. A retried wrap keeps its nonce.
 */
const serve = (connected: Connected, first: OpenSession) => {
  let session = first

  const reopen = () => {
    connected.close(session.handle)
    const next = connected.open()
    if (!sameKeys(next.keks, first.keks)) throw new Error("the token's keys have changed")
    return (session = next)
  }

  return (request: TokenRequest) => {
    const { id } = request
    const input = bytesOf(request.input)
    try {
      if (monotonicMillis() > request.expires) return
      try {
        answerAndWipe(id, run(connected, session, request, input))
      } catch {
        answerAndWipe(id, run(connected, reopen(), request, input))
      }
    } catch (cause) {
      if (cause instanceof NotDecrypted) return answer({ id, failure: "AuthenticationFailed" })
      if (cause instanceof Refused) return answerAndExit({ refused: cause.refusal })
      answerAndExit({ id, failure: "KeyStoreUnavailable", reason: `the token returned ${codeOf(cause)}` })
    } finally {
      input.fill(0)
    }
  }
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {})
process.once("disconnect", () => process.exit())
process.once("message", (target: TokenTarget) => {
  connect(target)
    .then((connected) => {
      const session = connected.open()
      process.on("message", serve(connected, session))
      answer({ opened: session.keks })
    })
    .catch((cause: unknown) =>
      answerAndExit(
        cause instanceof Refused ? { refused: cause.refusal } : { unavailable: `the token returned ${codeOf(cause)}` }
      )
    )
})
