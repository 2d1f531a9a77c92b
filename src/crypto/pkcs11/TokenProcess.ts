import { createHash } from "node:crypto"
import type { KnownKek } from "../KeyEncryption.ts"
import type { TokenAnswer, TokenRefusal, TokenRequest, TokenTarget } from "./TokenMessages.ts"

const answer = (message: TokenAnswer, then?: () => void) => void process.send?.(message, undefined, undefined, then)

/** Ends once the answer is on its way. What was asked meanwhile is not tried: each log-in may be one wrong PIN more. */
const lastly = (message: TokenAnswer) => {
  process.removeAllListeners("message")
  answer(message, () => process.exit())
}

class Refused extends Error {
  readonly refusal: TokenRefusal
  constructor(part: TokenRefusal["part"], message: string) {
    super(message)
    this.refusal = { part, message }
  }
}

/** The name of a PKCS#11 return value, which holds no value of ours. */
const nameOf = (cause: unknown) =>
  cause instanceof Error && /^CKR_\w+$/.test(cause.message) ? cause.message : "an error"

const refusing = <A>(part: TokenRefusal["part"], message: string, only: RegExp, use: () => A) => {
  try {
    return use()
  } catch (cause) {
    if (only.test(nameOf(cause))) throw new Refused(part, `${message}; found ${nameOf(cause)}`)
    throw cause
  }
}

const isTrue = (value: Buffer | undefined) => value?.[0] === 1
const numberOf = (value: Buffer | undefined) => (value === undefined ? undefined : value.readUInt32LE(0))

/**
 * What the token encrypts with AES-ECB to a check value. Of the blocks that GCM encrypts under the same key none is
 * like it: those are all zero, or end with a counter, which for 32 bytes is 1, 2 or 3.
 */
const checkBlock = (kek_id: string) =>
  Buffer.concat([createHash("sha256").update(`byok/kcv/${kek_id}`).digest().subarray(0, 12), Buffer.from("byok")])

const load = async ({ module }: TokenTarget) => {
  const { default: pkcs11 } = await import("pkcs11js").catch(() => {
    throw new Refused("module", "expected the optional package pkcs11js; found none that was built for this machine")
  })
  const token = new pkcs11.PKCS11()
  try {
    token.load(module)
  } catch {
    throw new Refused("module", "expected the file of a PKCS#11 module that can be loaded")
  }
  token.C_Initialize({ flags: pkcs11.CKF_OS_LOCKING_OK ?? 2 })
  return { pkcs11, token }
}

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
    throw new Refused("token", `expected the label of one token of the module; found ${slots.length} with this label`)
  }

  const keyOf = (session: Buffer, kek_id: string, position: number) => {
    token.C_FindObjectsInit(session, [
      { type: constant("CKA_CLASS"), value: constant("CKO_SECRET_KEY") },
      { type: constant("CKA_LABEL"), value: kek_id }
    ])
    const found = token.C_FindObjects(session, 2)
    token.C_FindObjectsFinal(session)
    const refuse = (what: string) =>
      new Refused(
        "kek_ids",
        `key ${position}: expected one AES-256 key with this label, sensitive and not extractable; found ${what}`
      )
    const [key] = found
    if (key === undefined || found.length > 1) throw refuse(key === undefined ? "none" : "several")
    const wanted = ["CKA_KEY_TYPE", "CKA_VALUE_LEN", "CKA_SENSITIVE", "CKA_EXTRACTABLE"] as const
    const [type, length, sensitive, extractable] = token
      .C_GetAttributeValue(
        session,
        key,
        wanted.map((name) => ({ type: constant(name) }))
      )
      .map(({ value }) => value)
    if (numberOf(type) !== constant("CKK_AES") || numberOf(length) !== 32) throw refuse("a key of another kind")
    if (!isTrue(sensitive) || isTrue(extractable)) throw refuse("a key that can be taken out")
    return key
  }

  const open = () => {
    const session = token.C_OpenSession(slotOf(), constant("CKF_SERIAL_SESSION"))
    try {
      refusing("pin", "expected the PIN of the token's user", /^CKR_PIN_/, () =>
        token.C_Login(session, constant("CKU_USER"), target.pin)
      )
      const keys = new Map(target.kek_ids.map((kek_id, index) => [kek_id, keyOf(session, kek_id, index + 1)]))
      const keks = Array.from(keys, ([kek_id, key]): KnownKek => {
        token.C_EncryptInit(session, { mechanism: constant("CKM_AES_ECB") }, key)
        return { kek_id, check_value: token.C_Encrypt(session, checkBlock(kek_id), Buffer.alloc(16)) }
      })
      return { session, keys, keks }
    } catch (cause) {
      close(session)
      throw cause
    }
  }

  const close = (session: Buffer) => {
    try {
      token.C_CloseSession(session)
    } catch {
      // It has gone already.
    }
  }

  return { constant, token, open, close }
}

type Connected = Awaited<ReturnType<typeof connect>>
type Session = ReturnType<Connected["open"]>

/** What C_Decrypt answers, beside other causes, when the bytes are not those that were encrypted. */
const mayBeAltered =
  /^CKR_(GENERAL_ERROR|FUNCTION_FAILED|ENCRYPTED_DATA_\w+|AEAD_DECRYPT_FAILED|DATA_INVALID|SIGNATURE_INVALID)$/

class NotDecrypted extends Error {}

const run = ({ constant, token }: Connected, { keys, session }: Session, request: TokenRequest): Buffer => {
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
  const input = Buffer.from(request.input)
  try {
    if (request.operation === "wrap") {
      token.C_EncryptInit(session, mechanism, key)
      return token.C_Encrypt(session, input, Buffer.alloc(input.length + 16))
    }
    token.C_DecryptInit(session, mechanism, key)
    try {
      return token.C_Decrypt(session, input, Buffer.alloc(input.length))
    } catch (cause) {
      throw mayBeAltered.test(nameOf(cause)) ? new NotDecrypted(nameOf(cause)) : cause
    }
  } finally {
    input.fill(0)
    request.input.fill(0)
  }
}

const done = (id: number, output: Buffer) => {
  answer({ id, output })
  output.fill(0)
}

/**
 * Whatever fails is tried once more in a new session, in which the keys were found again and have the check values that
 * they had: what the token does not decrypt then either was altered. The nonce stays, so that no wrap counts twice.
 */
const serve = (connected: Connected, first: Session) => {
  let session = first

  const reopened = () => {
    connected.close(session.session)
    const next = connected.open()
    const changed = next.keks.some(
      ({ check_value }, index) => Buffer.compare(check_value, first.keks[index]?.check_value ?? Buffer.alloc(0)) !== 0
    )
    if (changed) throw new Error("the token has other keys than before")
    return (session = next)
  }

  return (request: TokenRequest) => {
    const { id } = request
    const input = Buffer.from(request.input)
    const again = () => ({ ...request, input: Buffer.from(input) })
    if (Date.now() > request.expires) return
    try {
      try {
        done(id, run(connected, session, again()))
      } catch {
        done(id, run(connected, reopened(), again()))
      }
    } catch (cause) {
      if (cause instanceof NotDecrypted) return answer({ id, failure: "AuthenticationFailed" })
      if (cause instanceof Refused) return lastly({ refused: cause.refusal })
      lastly({ id, failure: "KeyStoreUnavailable", reason: `the token answers ${nameOf(cause)}` })
    } finally {
      input.fill(0)
    }
  }
}

/**
 * This process speaks to the token, one call at a time: what hangs or crashes here takes nothing along. Signals are for
 * the service, which ends it when it needs it no more.
 */
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
      lastly(
        cause instanceof Refused ? { refused: cause.refusal } : { unavailable: `the token answers ${nameOf(cause)}` }
      )
    )
})
