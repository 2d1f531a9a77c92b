import { randomUUID } from "node:crypto"
import { minimal } from "../support/http/Bodies.ts"
import { bearer, type Header, json, type Request } from "../support/http/HttpProbe.ts"

/** Requests with a secret where customers put theirs, sent by the holder of a management key. */
export type Input = (secret: string, management_key: string) => ReadonlyArray<Request>

const inMaterial = (secret: string, region: unknown = "us") => JSON.stringify({ api_key: secret, region })
const latin1 = (text: string) => Buffer.from(text, "latin1")

/** Bodies with a secret where customers put their keys, in the right form and in many wrong ones. */
const bodies: Readonly<Record<string, (secret: string) => unknown>> = {
  "a key": (secret) => ({ provider: "xai", key: secret }),
  "key material": (secret) => ({ provider: "openai", key: inMaterial(secret) }),
  "key material of another region": (secret) => ({
    provider: "openai",
    key: inMaterial(secret),
    declared_region: "europe"
  }),
  "key material of an unknown region": (secret) => ({ provider: "openai", key: inMaterial(secret, secret) }),
  "key material that is cut off": (secret) => ({ provider: "fireworks", key: inMaterial(secret).slice(0, -2) }),
  "key material as an object": (secret) => ({ provider: "fireworks", key: { api_key: secret } }),
  "a key in a list": (secret) => ({ provider: "xai", key: [secret] }),
  "a key with U+0000": (secret) => ({ provider: "xai", key: `${secret}\0${secret}` }),
  "a key with half of a surrogate pair": (secret) => ({ provider: "xai", key: `${secret}\ud800` }),
  "a key and flags that conflict": (secret) => ({ ...minimal, key: secret, is_fallback: true, is_required: true }),
  "a key for nobody": (secret) => ({ provider: "nobody", key: secret }),
  "a key as the provider": (secret) => ({ provider: secret, key: secret }),
  "a key in every other field": (secret) => ({
    ...minimal,
    key: secret,
    workspace_id: secret,
    allowed_api_key_hashes: [secret],
    declared_region: secret,
    declared_zdr: secret,
    disabled: secret,
    allowed_models: secret
  }),
  "a key as the name of a member": (secret) => ({ ...minimal, key: 5, [secret]: secret }),
  "a key in unknown members": (secret) => ({ ...minimal, api_key: secret, secret: { key: secret } }),
  "a key in someone's workspace": (secret) => ({
    ...minimal,
    key: secret,
    workspace_id: "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
  }),
  "a key and nothing else": (secret) => secret,
  "JSON that ends in the key": (secret) => `{"provider":"xai","key":"${secret}`,
  "JSON that goes wrong after the key": (secret) => `{"provider":"xai","key":"${secret}",}`,
  "JSON that goes wrong before the key": (secret) => `{'provider':'xai','key':'${secret}'}`,
  "bytes that are not UTF-8 beside the key": (secret) => latin1(`{"provider":"xai","key":"\xff${secret}"}`),
  "a body that is too large": (secret) => ({ provider: "xai", key: secret.repeat(8_000) })
}

/** Heads with a secret where customers put their tokens, and where none belongs. */
const heads: Readonly<Record<string, (secret: string) => ReadonlyArray<Header>>> = {
  "an unknown token": (secret) => [bearer(secret)],
  "another scheme": (secret) => [["Authorization", `Basic ${secret}`]],
  "no scheme": (secret) => [["Authorization", secret]],
  "two tokens": (secret) => [bearer(secret), bearer(secret)],
  "a token that is too long": (secret) => [bearer(secret.repeat(600))],
  "a token with a line break": (secret) => [["Authorization", `Bearer ${secret}\r\n ${secret}`]],
  "a token in a cookie": (secret) => [["Cookie", `token=${secret}`]],
  "a token in headers of other names": (secret) =>
    ["X-Api-Key", "Api-Key", "X-Auth-Token", "Proxy-Authorization"].map((name) => [name, secret]),
  "a token in headers of another use": (secret) => [
    ["User-Agent", `Bearer ${secret}`],
    ["X-Request-Id", `Bearer ${secret}`],
    ["traceparent", `00-${secret}`],
    ["Origin", `https://${secret}.test`]
  ],
  "a token as the content type": (secret) => [["Content-Type", `application/${secret}`]],
  "a token as the expectation": (secret) => [["Expect", secret]]
}

const collection = "/api/v1/byok"

const withBody =
  (bodyOf: (secret: string) => unknown): Input =>
  (secret, management_key) => {
    const body = bodyOf(secret)
    const sent = typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body)
    return [{ method: "POST", path: collection, headers: [bearer(management_key), json], body: sent }]
  }

const withHead =
  (headOf: (secret: string) => ReadonlyArray<Header>): Input =>
  (secret) => [
    { path: `${collection}/nonsense`, headers: headOf(secret) },
    { method: "POST", path: collection, headers: [json, ...headOf(secret)], body: "{}" }
  ]

const inTheQuery: Input = (secret, management_key) => [
  { path: `${collection}/nonsense?token=${secret}` },
  { path: `${collection}/nonsense?${secret}`, headers: [bearer(management_key)] }
]

const inTheList: Input = (secret, management_key) => [
  { path: `${collection}?limit=${secret}&offset=${secret}`, headers: [bearer(management_key)] },
  {
    path: `${collection}?provider=${secret}&workspace_id=${secret}&cursor=${secret}`,
    headers: [bearer(management_key)]
  }
]

/** Updates of what does not exist, which are refused or find nothing. */
const inAnUpdate: Input = (secret, management_key) =>
  [{ key: secret, name: secret }, { key: `${secret}\0` }, { declared_region: secret, allowed_models: secret }].map(
    (body) => ({
      method: "PATCH",
      path: `${collection}/019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11`,
      headers: [bearer(management_key), json],
      body: JSON.stringify(body)
    })
  )

/** Plans with a secret in every field that no answer repeats, and refused ones with a secret in all. */
const inAPlan: Input = (secret, management_key) =>
  [
    { model: "a/model", user_id: secret, targets: [{ provider: "xai" }] },
    {
      model: secret,
      api_key_hash: secret,
      host: secret,
      strategy: secret,
      targets: [{ provider: secret, endpoint: secret }]
    },
    { model: `${secret}\0`, workspace_id: secret, requires_zdr: secret, targets: secret, [secret]: secret }
  ].map((body) => ({
    method: "POST",
    path: `${collection}/plan`,
    headers: [bearer(management_key), json],
    body: JSON.stringify(body)
  }))

/** A create, its repetition, another with the same idempotency key, and refused keys. */
const underIdempotencyKeys: Input = (secret, management_key) => {
  const name = `${secret}${randomUUID()}`
  return [
    { names: [name], body: { provider: "xai", key: secret } },
    { names: [name], body: { provider: "xai", key: secret } },
    { names: [name], body: { provider: "groq", key: `${secret}${secret}` } },
    { names: [secret, secret], body: minimal },
    { names: [secret.repeat(20)], body: minimal }
  ].map(({ body, names }) => ({
    method: "POST",
    path: collection,
    headers: [bearer(management_key), json, ...names.map((name) => ["Idempotency-Key", name] as const)],
    body: JSON.stringify(body)
  }))
}

export const inputs: ReadonlyArray<readonly [name: string, input: Input]> = [
  ...Object.entries(bodies).map(([name, body]) => [name, withBody(body)] as const),
  ...Object.entries(heads).map(([name, head]) => [name, withHead(head)] as const),
  ["a token in the query", inTheQuery],
  ["a key in the query of a list", inTheList],
  ["a key in an update", inAnUpdate],
  ["a key in a plan", inAPlan],
  ["an idempotency key and a key", underIdempotencyKeys]
]
