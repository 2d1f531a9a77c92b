import { createHmac, createPrivateKey, hash, sign } from "node:crypto"
import { promisify } from "node:util"
import { Effect } from "effect"
import type { BedrockKey, CloudKey, VertexKey } from "../../domain/CloudKey.ts"

/** A short-lived token, sent instead of the cloud key that signs it. Times are in milliseconds since 1970. */
export interface Token {
  readonly text: string
  readonly minted_at: number
  readonly expires_at: number
}

/** Lifetimes of tokens in seconds. Google requires exactly an hour. */
const ttl = { bedrock: 900, vertex: 3600 }

/** Signs a token offline; undefined if the key cannot sign. `now` is in milliseconds. */
export const mint = (key: CloudKey, now: number): Effect.Effect<Token | undefined> => {
  const seconds = Math.floor(now / 1000)
  const tokenOf = (text: string, lifetime: number): Token => ({
    text,
    minted_at: seconds * 1000,
    expires_at: (seconds + lifetime) * 1000
  })
  return "accessKeyId" in key
    ? Effect.sync(() => tokenOf(signBedrock(key, seconds), ttl.bedrock))
    : Effect.orElseSucceed(
        Effect.tryPromise(async () => tokenOf(await signVertex(key, seconds), ttl.vertex)),
        () => undefined
      )
}

/** The parts of a token to redact from texts, even where they appear alone. */
export const secretPartsOf = (token: string): ReadonlyArray<string> => {
  if (!token.startsWith(bedrockPrefix)) return token.split(".")
  const encoded = token.slice(bedrockPrefix.length)
  const url = Buffer.from(encoded, "base64").toString()
  const query = new URLSearchParams(url.replace(/^[^?]*/, ""))
  return [encoded, url, ...query.getAll("X-Amz-Signature"), ...query.getAll("X-Amz-Security-Token")]
}

const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest()

/** Percent-encodes by RFC 3986, as Signature Version 4 requires. */
const percentEncode = (text: string) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)

const bedrockHost = "bedrock.amazonaws.com"
const bedrockPrefix = "bedrock-api-key-"

/** Signs a short-term API key for Bedrock: a URL presigned with Signature Version 4. */
const signBedrock = ({ accessKeyId, region, secretAccessKey, sessionToken }: BedrockKey, seconds: number): string => {
  const date = new Date(seconds * 1000).toISOString().replace(/[-:]|\.000/g, "")
  const scope = [date.slice(0, 8), region, "bedrock", "aws4_request"]
  const queryWith = (signature?: string) =>
    Object.entries({
      Action: "CallWithBearerToken",
      "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
      "X-Amz-Credential": [accessKeyId, ...scope].join("/"),
      "X-Amz-Date": date,
      "X-Amz-Expires": String(ttl.bedrock),
      "X-Amz-Security-Token": sessionToken,
      "X-Amz-Signature": signature,
      "X-Amz-SignedHeaders": "host"
    })
      .flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${percentEncode(value)}`]))
      .join("&")
  const canonicalRequest = ["POST", "/", queryWith(), `host:${bedrockHost}`, "", "host", hash("sha256", "")].join("\n")
  const stringToSign = ["AWS4-HMAC-SHA256", date, scope.join("/"), hash("sha256", canonicalRequest)].join("\n")
  const signingKey = scope.reduce<string | Buffer>(hmac, `AWS4${secretAccessKey}`)
  const url = `${bedrockHost}/?${queryWith(hmac(signingKey, stringToSign).toString("hex"))}&Version=1`
  return bedrockPrefix + Buffer.from(url).toString("base64")
}

const base64url = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url")

const signInThreadPool = promisify(sign)

/**
 * Signs a JWT as a service account (AIP-4111), in Node's pool of threads because a signature takes milliseconds. Fails
 * if the numbers of the key fit so badly together that OpenSSL refuses them.
 */
const signVertex = async ({ client_email, private_key, private_key_id }: VertexKey, seconds: number) => {
  const claims = {
    iss: client_email,
    sub: client_email,
    scope: "https://www.googleapis.com/auth/cloud-platform",
    exp: seconds + ttl.vertex,
    iat: seconds
  }
  const signingInput = `${base64url({ alg: "RS256", typ: "JWT", kid: private_key_id })}.${base64url(claims)}`
  const key = createPrivateKey({ key: Buffer.from(private_key), format: "der", type: "pkcs1" })
  const signature = await signInThreadPool("sha256", Buffer.from(signingInput), key)
  return `${signingInput}.${signature.toString("base64url")}`
}
