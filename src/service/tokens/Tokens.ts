import { createSecretKey, randomBytes } from "node:crypto"
import { Clock, Context, Effect, Layer, Result } from "effect"
import { type CloudDetails, cloudDetailsOf, type CloudKey } from "../../domain/CloudKey.ts"
import type { ServiceUnavailable } from "../../domain/Errors.ts"
import type { CredentialId, CredentialReference } from "../../domain/Identifiers.ts"
import { isUnableToSign, parseCloudKey } from "../../domain/KeyMaterial.ts"
import type { PooledCredential } from "../../domain/routing/Pool.ts"
import { decrypt, encrypt, nonceLength } from "../../runtime/AesGcm.ts"
import { MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { makeRequestQueue } from "../../runtime/FairQueue.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"
import { mint } from "./mint.ts"

/** Whether cloud keys never leave the process: leases get only tokens that these keys sign (D58). */
export class TokensOnly extends Context.Service<TokensOnly, boolean>()("byok/TokensOnly") {}

/** The expiry of a token, in milliseconds since 1970, and what a gateway needs in addition to it. */
export interface TokenTerms {
  readonly expires_at: number
  readonly cloud: CloudDetails
}

/** A version of a stored key, which signs tokens if it is a cloud key. */
interface Signer extends CredentialReference {
  readonly provider: string
  readonly key_version: number
}

/** Receives a key, or a token with its terms, and copies it: the caller wipes the buffer. */
type Fill = (key: Uint8Array, token?: TokenTerms) => void

/** The share of its lifetime for which a token is reused. */
const cachedShare = 0.8

/** One signature at a time leaves the other threads of Node's pool to others, and no key signs twice at once. */
const signatures = { inProgress: 1, waiting: Number.POSITIVE_INFINITY }

/** Approximate memory of a cached token beside its text. */
const overheadBytes = 1024

/** Boxes have no additional data: their key is this cache's alone. */
const noAad = Buffer.alloc(0)

interface CachedToken {
  readonly key_version: number
  readonly terms: TokenTerms
  readonly minted_at: number
  /** In milliseconds since 1970, like `minted_at`. */
  readonly reused_until: number
  /** The encrypted text. */
  readonly box: Buffer
}

/**
 * Signs tokens with stored cloud keys, and reuses each for 80 % of its lifetime. Invariant: the cache has at most one
 * token per credential, encrypted under a key of this process, and zeroes those that it drops.
 */
export class Tokens extends Context.Service<Tokens>()("byok/Tokens", {
  make: Effect.gen(function* () {
    const { makeCache } = yield* MemoryBudget
    const clock = yield* Clock.Clock
    const cacheKey = createSecretKey(randomBytes(32))
    const cache = makeCache<CachedToken>(({ box }) => void box.fill(0))
    const wipe: (id: CredentialId) => void = cache.delete
    const inTurn = makeRequestQueue(signatures)

    /** Whether a token may be reused; not if the clock was set back to before it was minted. */
    const isFresh = ({ minted_at, reused_until }: CachedToken) => {
      const now = clock.currentTimeMillisUnsafe()
      return minted_at <= now && now < reused_until
    }

    /** Returns the token of a key if it may be reused. Wipes any other token of its credential. */
    const findOrWipe = ({ credential_id, key_version }: Signer): CachedToken | undefined => {
      const cached = cache.get(credential_id)
      if (cached?.key_version === key_version && isFresh(cached)) return cached
      wipe(credential_id)
      return undefined
    }

    /** Caches a token if memory allows. */
    const cacheToken = (signer: Signer, text: Buffer, minted_at: number, terms: TokenTerms) => {
      const { credential_id, key_version } = signer
      const box = encrypt(cacheKey, randomBytes(nonceLength), text, noAad)
      const reused_until = minted_at + cachedShare * (terms.expires_at - minted_at)
      cache.set(credential_id, { key_version, terms, minted_at, reused_until, box }, text.length + overheadBytes)
    }

    /** Passes the cached token of a key to `fill`. Returns false if there is none. */
    const open = (signer: Signer, fill: Fill): boolean => {
      const cached = findOrWipe(signer)
      if (cached === undefined) return false
      const { box, terms } = cached
      const text = decrypt(cacheKey, box, noAad)
      if (text === undefined) throw new Error("A cached token does not decrypt")
      fill(text, terms)
      text.fill(0)
      return true
    }

    /** Passes the cached token to `fill`, or a new one. Returns false if the key cannot sign. */
    const openOrMint = (signer: Signer, key: CloudKey, fill: Fill): Effect.Effect<boolean> => {
      if (open(signer, fill)) return Effect.succeed(true)
      return Effect.map(mint(key, clock.currentTimeMillisUnsafe()), (token) => {
        if (token === undefined) return false
        const text = Buffer.from(token.text)
        const terms = { expires_at: token.expires_at, cloud: cloudDetailsOf(key) }
        cacheToken(signer, text, token.minted_at, terms)
        fill(text, terms)
        text.fill(0)
        return true
      })
    }

    yield* Effect.addFinalizer(() => Effect.sync(() => cache.entries().forEach(([id]) => cache.delete(id))))
    const wipeExpired = Effect.sync(() => {
      for (const [id, cached] of cache.entries()) if (!isFresh(cached)) cache.delete(id)
    })
    yield* repeatInBackground("10 seconds", wipeExpired, "Old tokens could not be wiped")

    return {
      isCached: (signer: Signer): boolean => findOrWipe(signer) !== undefined,
      open,
      /**
       * Passes to `fill` the cached token of an opened key, or a new one, or the key itself if it is no cloud key.
       * Returns false, without a call of `fill`, for what is or may be a cloud key that cannot sign. Reads the key during
       * the call, before the effect runs; the effect fails only at the request's deadline.
       */
      sign: (signer: Signer, key: Buffer, fill: Fill): Effect.Effect<boolean, ServiceUnavailable> => {
        if (open(signer, fill)) return Effect.succeed(true)
        const text = key.toString("utf8")
        const parsed = parseCloudKey(signer.provider, text)
        const cloudKey = parsed && Result.getOrUndefined(parsed)
        if (cloudKey !== undefined) {
          return inTurn(
            signer.account_id,
            Effect.suspend(() => openOrMint(signer, cloudKey, fill))
          )
        }
        if (isUnableToSign(signer.provider, text)) return Effect.succeed(false)
        fill(key)
        return Effect.succeed(true)
      },
      /** Drops and zeroes the cached token of a credential, if any. */
      wipe,
      /** Wipes the tokens of an evicted or replaced pool, except those of key versions in its `successor`. */
      wipePool: (
        pool: ReadonlyArray<Pick<PooledCredential, "credential" | "key_version">>,
        successor?: ReadonlyMap<CredentialId, Pick<PooledCredential, "key_version">>
      ) => {
        for (const { credential, key_version } of pool) {
          if (successor?.get(credential.id)?.key_version !== key_version) wipe(credential.id)
        }
      }
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
