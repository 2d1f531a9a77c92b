import { createPrivateKey } from "node:crypto"
import { getToken } from "@aws/bedrock-token-generator"
import { Arbitrary, Effect, Result } from "effect"
import { JWTAccess } from "google-auth-library"
import { importSPKI, jwtVerify } from "jose"
import { vi } from "vitest"
import { parseRsaKey } from "../../../src/domain/RsaKey.ts"
import { mint, secretPartsOf } from "../../../src/service/tokens/mint.ts"
import { accessKey, rsaKey, serviceAccount } from "../../support/keys/cloudKeys.ts"
import { rsaPem } from "../../support/keys/unusableKeys.ts"
import { canary, elementOf, integer } from "../../support/memory/arbitraries.ts"
import { assert, describe, it } from "../../support/it.ts"

const scope = "https://www.googleapis.com/auth/cloud-platform"

/** Runs another implementation, which reads the clock, with the time set to `now`. */
const at = <A>(now: number, run: () => Promise<A>) =>
  Effect.promise(async () => {
    vi.useFakeTimers({ now, toFake: ["Date"] })
    try {
      return await run()
    } finally {
      vi.useRealTimers()
    }
  })

/** From 2001 to 2096, to the millisecond. */
const clock = Arbitrary.map(
  Arbitrary.all({ seconds: integer(1_000_000_000, 4_000_000_000), millis: integer(0, 999) }),
  ({ millis, seconds }) => seconds * 1000 + millis
)

const visible = Arbitrary.map(
  Arbitrary.all({ start: canary, end: elementOf(["", "/+==", "!'()*~", "%2F&=?# ".trim()]) }),
  ({ end, start }) => start + end
)

describe("a token for Bedrock", () => {
  const keys = Arbitrary.all({
    accessKeyId: canary,
    secretAccessKey: visible,
    region: elementOf(["us-east-1", "eu-central-1", "us-gov-west-1", "ap-southeast-7", "eusc-de-east-1"]),
    sessionToken: visible,
    hasSession: elementOf([false, true])
  })
  it.effect.prop(
    "equals the token of AWS's generator, byte for byte",
    [keys, clock],
    function* ([{ hasSession, region, sessionToken, ...rest }, now]) {
      const credentials = hasSession ? { ...rest, sessionToken } : rest
      const expected = yield* at(now, () => getToken({ credentials, region, expiresInSeconds: 900 }))
      const minted = yield* mint({ ...credentials, region }, now)
      assert.strictEqual(minted?.text, expected)
      assert.strictEqual(minted?.expires_at, Math.floor(now / 1000) * 1000 + 900_000)
      for (const text of [expected, ...secretPartsOf(expected)]) assert.notInclude(text, rest.secretAccessKey)
    }
  )

  it.effect("changes with every part of the key and every second (control)", function* () {
    const now = 1_767_225_600_123
    const expected = yield* at(now, () =>
      getToken({ credentials: accessKey, region: accessKey.region, expiresInSeconds: 900 })
    )
    assert.strictEqual((yield* mint(accessKey, now))?.text, expected)
    assert.strictEqual((yield* mint(accessKey, now + 876))?.text, expected)
    for (const other of [
      mint(accessKey, now + 877),
      mint({ ...accessKey, secretAccessKey: `${accessKey.secretAccessKey}x` }, now),
      mint({ ...accessKey, region: "us-east-2" }, now),
      mint({ ...accessKey, sessionToken: "s" }, now)
    ])
      assert.notStrictEqual((yield* other)?.text, expected)
  })
})

describe("a token for Vertex", () => {
  const { client_email, private_key, private_key_id } = serviceAccount
  const rsaOf = (pem: string) => Result.getOrThrow(parseRsaKey(pem))
  const rsa = rsaOf(private_key)
  it.effect.prop(
    "equals the token of Google's library, and jose verifies it with the public key",
    [Arbitrary.all({ name: canary, kid: canary }), clock],
    function* ([{ kid, name }, now]) {
      const email = `${name}@fake-project.iam.gserviceaccount.com`
      const headers = yield* at(now, async () =>
        new JWTAccess(email, private_key, kid).getRequestHeaders(undefined, undefined, scope)
      )
      const minted = yield* mint({ client_email: email, private_key: rsa, private_key_id: kid }, now)
      assert.strictEqual(`Bearer ${minted?.text}`, headers.get("authorization"))
      const iat = Math.floor(now / 1000)
      assert.strictEqual(minted?.expires_at, (iat + 3600) * 1000)
      const verified = yield* Effect.promise(async () =>
        jwtVerify(minted?.text ?? "", await importSPKI(rsaKey.publicKey, "RS256"), { currentDate: new Date(now) })
      )
      assert.deepStrictEqual<unknown>(verified.protectedHeader, { alg: "RS256", typ: "JWT", kid })
      assert.deepStrictEqual<unknown>(verified.payload, { iss: email, sub: email, scope, exp: iat + 3600, iat })
    },
    { arbitrary: { runs: 50 } }
  )

  it.effect("is refused by jose when altered or expired (control)", function* () {
    const now = 1_767_225_600_000
    const [head = "", claims = "", signature = ""] =
      (yield* mint({ ...serviceAccount, private_key: rsa }, now))?.text.split(".") ?? []
    const key = yield* Effect.promise(() => importSPKI(rsaKey.publicKey, "RS256"))
    const verify = (token: string, time: number) =>
      Effect.exit(Effect.tryPromise(() => jwtVerify(token, key, { currentDate: new Date(time) })))
    const other = Buffer.from(JSON.stringify({ iss: "evil@fake.test" })).toString("base64url")
    const tags = yield* Effect.forEach(
      [
        verify(`${head}.${claims}.${signature}`, now + 3_599_000),
        verify(`${head}.${claims}.${signature}`, now + 3_600_000),
        verify(`${head}.${other}.${signature}`, now)
      ],
      Effect.map(({ _tag }) => _tag)
    )
    assert.deepStrictEqual(tags, ["Success", "Failure", "Failure"])
  })

  it.effect("can be signed with a PKCS #1 key and with a key of 4096 bits", function* () {
    const pkcs1 = createPrivateKey(private_key).export({ type: "pkcs1", format: "pem" })
    for (const key of [String(pkcs1), rsaPem(4096)])
      assert.isDefined(yield* mint({ client_email, private_key_id, private_key: rsaOf(key) }, 0))
  })

  it.effect("is undefined if OpenSSL refuses the key", function* () {
    assert.isUndefined(yield* mint({ client_email, private_key_id, private_key: Buffer.of(0) as never }, 0))
  })

  it.effect("is signed while the event loop goes on", function* () {
    const order: Array<string> = []
    setImmediate(() => order.push("another event"))
    yield* mint({ client_email, private_key_id, private_key: rsaOf(rsaPem(4096)) }, 0)
    order.push("signature")
    assert.deepStrictEqual(order, ["another event", "signature"])
  })
})

describe("the secret parts of a token", () => {
  it.effect("are the URL, signature and session token for Bedrock, and each part of a JWT for Vertex", function* () {
    const sessionToken = "a-session/+=="
    const token = (yield* mint({ ...accessKey, sessionToken }, 0))?.text ?? ""
    const encoded = token.replace("bedrock-api-key-", "")
    const url = Buffer.from(encoded, "base64").toString()
    const signature = /X-Amz-Signature=([0-9a-f]{64})&/.exec(url)?.[1]
    assert.deepStrictEqual<unknown>(secretPartsOf(token), [encoded, url, signature, sessionToken])
    assert.deepStrictEqual(secretPartsOf("head.claims.signature"), ["head", "claims", "signature"])
  })
})
