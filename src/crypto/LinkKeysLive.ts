import { AEAD_AES_256_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_P256_HKDF_SHA256 } from "hpke"
import { isUtf8 } from "node:buffer"
import { Effect, Layer, Redacted, Result } from "effect"
import { InvalidParams } from "../domain/Errors.ts"
import { encodeSealTarget, linkContext } from "../domain/Link.ts"
import { Cipher } from "../port/Cipher.ts"
import { LinkAltered, LinkKeys, NotForThisLink } from "../port/Links.ts"

const suite = new CipherSuite(KEM_DHKEM_P256_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_256_GCM)

/** For WebCrypto, because importing private keys with the library makes Node warn of an experimental feature. */
const ecdh = { name: "ECDH", namedCurve: "P-256" }

/**
 * Makes HPKE key pairs, and opens what browsers seal to them. Private keys are base64 of PKCS #8, sealed with `Cipher`.
 */
export const layer = Layer.effect(
  LinkKeys,
  Effect.map(Cipher, ({ read, seal, verify }) => ({
    make: Effect.fnUntraced(function* (link) {
      const { privateKey, publicKey } = yield* Effect.promise(() => suite.GenerateKeyPair(true))
      const public_key = yield* Effect.promise(() => suite.SerializePublicKey(publicKey))
      const pkcs8 = new Uint8Array(yield* Effect.promise(() => crypto.subtle.exportKey("pkcs8", privateKey)))
      const encodedKey = Redacted.make(Buffer.from(pkcs8).toString("base64"))
      pkcs8.fill(0)
      return { public_key, private_key: yield* seal(encodedKey, linkContext(link, public_key)) }
    }),
    verify: (link, { private_key, public_key }) =>
      Effect.catch(Effect.fromResult(verify(private_key, linkContext(link, public_key))), (failure) =>
        failure._tag === "AuthenticationFailed" ? Effect.fail(new LinkAltered()) : Effect.die(failure)
      ),
    open: Effect.fnUntraced(function* (link, { private_key, public_key }, { ciphertext, enc }, target) {
      const notForThisLink = () => new NotForThisLink()
      const decode = (text: Buffer) => Buffer.from(text.toString("latin1"), "base64")
      const pkcs8 = yield* Effect.fromResult(
        Result.mapError(read(private_key, linkContext(link, public_key), decode), ({ _tag }) =>
          _tag === "AuthenticationFailed" ? new LinkAltered() : notForThisLink()
        )
      )
      const aad = Buffer.from(encodeSealTarget(target))
      const opened = yield* Effect.tryPromise({
        try: async () => {
          const pair = {
            privateKey: await crypto.subtle.importKey("pkcs8", pkcs8, ecdh, false, ["deriveBits"]),
            publicKey: await suite.DeserializePublicKey(public_key)
          }
          return Buffer.from(await suite.Open(pair, enc, ciphertext, { aad }))
        },
        catch: notForThisLink
      }).pipe(Effect.ensuring(Effect.sync(() => pkcs8.fill(0))))
      const text = isUtf8(opened) ? opened.toString("utf8") : undefined
      opened.fill(0)
      return text === undefined
        ? yield* InvalidParams.of({ path: ["key"], message: "must be UTF-8" })
        : Redacted.make(text)
    })
  }))
)
