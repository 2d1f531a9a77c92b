import { AEAD_AES_256_GCM, CipherSuite, KDF_HKDF_SHA256, KEM_DHKEM_P256_HKDF_SHA256 } from "hpke"
import { Effect, Redacted, Schema } from "effect"
import type { AccountId } from "../../src/domain/Identifiers.ts"
import { encodeSealTarget, type Link, NewLink } from "../../src/domain/Link.ts"
import { Links } from "../../src/service/links/Links.ts"
import { bearer, json, send } from "../support/http/HttpProbe.ts"
import { TestService } from "../support/http/TestService.ts"

const suite = new CipherSuite(KEM_DHKEM_P256_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_256_GCM)

interface About extends Link {
  readonly public_key: string
  readonly providers: ReadonlyArray<string>
}

const base64url = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64url")

/** Seals a key to a link as the page does. */
export const seal = (about: About, key: string | Buffer, provider: string, credential_id: string | null = null) =>
  Effect.promise(async () => {
    const publicKey = await suite.DeserializePublicKey(new Uint8Array(Buffer.from(about.public_key, "base64url")))
    const aad = Buffer.from(encodeSealTarget({ ...about, provider, credential_id: credential_id as never }))
    const { ciphertext, encapsulatedSecret } = await suite.Seal(publicKey, Buffer.from(key), { aad })
    return { enc: base64url(encapsulatedSecret), ciphertext: base64url(ciphertext) }
  })

/** The requests that the page sends with a token. */
export const pageWith = Effect.fnUntraced(function* (token: string) {
  const { url } = yield* TestService
  const ask = Effect.fnUntraced(function* (method: string, path: string, body?: object, idempotency_key?: string) {
    const { body: text, status } = yield* send(url, {
      method,
      path: `/api/links/v1${path}`,
      headers: [
        bearer(token),
        ...(body === undefined ? [] : [json]),
        ...(idempotency_key === undefined ? [] : [["Idempotency-Key", idempotency_key] as const])
      ],
      ...(body === undefined ? {} : { body: JSON.stringify(body) })
    })
    const { data, error } = JSON.parse(text) as {
      readonly data?: unknown
      readonly error?: { readonly message: string; readonly metadata?: unknown }
    }
    return { status, text, data, error }
  })
  const about = Effect.map(ask("GET", "/link"), ({ data }) => data as About)
  const sealedNow = (key: string, provider: string, id: string | null = null) =>
    Effect.flatMap(about, (about) => seal(about, key, provider, id))
  return {
    ask,
    about,
    sealedNow,
    /** Creates a credential with a key that is sealed now. */
    create: (key: string, provider = "openai", name: string | null = null) =>
      Effect.flatMap(sealedNow(key, provider), (sealed_key) => ask("POST", "/byok", { provider, name, sealed_key })),
    replace: (id: string, key: string, provider = "openai") =>
      Effect.flatMap(sealedNow(key, provider, id), (sealed_key) => ask("PATCH", `/byok/${id}`, { sealed_key }))
  }
})

const decodeLink = Schema.decodeUnknownSync(NewLink)

/** A link of a tenant, and its page. */
export const openLink = Effect.fnUntraced(function* (
  { account_id }: { readonly account_id: AccountId },
  asked: object
) {
  const { create } = yield* Links
  const made = yield* Effect.orDie(create(account_id, decodeLink(asked)))
  const url = Redacted.value(made.url)
  const token = url.split("#")[1] ?? ""
  return { link_id: made.link_id, token, fragment: `#${token}`, ...(yield* pageWith(token)) }
})
