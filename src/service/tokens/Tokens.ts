import { createCipheriv, createDecipheriv, createSecretKey, randomBytes } from "node:crypto"
import { Clock, Context, Effect, Layer, Result } from "effect"
import { type Cloud, cloudOf } from "../../domain/CloudKey.ts"
import type { CredentialId, OwnedCredential } from "../../domain/Identifiers.ts"
import { cloudKeyIn } from "../../domain/KeyMaterial.ts"
import type { PooledCredential } from "../../domain/routing/Pool.ts"
import { type Holding, MemoryBudget } from "../../runtime/MemoryBudget.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"
import { mint } from "./mint.ts"

/** Whether a key that should sign tokens never leaves the process (D58). */
export const TokensOnly = Context.Reference("byok/TokensOnly", { defaultValue: () => false })

/** What a gateway needs to know of a token. `expires_at` is in milliseconds since 1970. */
export interface TokenTerms {
  readonly expires_at: number
  readonly cloud: Cloud
}

/** The version of a key that signs. */
interface Signer extends OwnedCredential {
  readonly provider: string
  readonly key_version: number
}

/** Copies a key, or the token of these terms. */
type Fill = (key: Uint8Array, token?: TokenTerms) => void

/** For how much of its life a token is handed out. */
const keptPart = 0.8

/** About how many bytes a kept token takes beside its text. */
const bytesOfKept = 1024

const algorithm = "aes-256-gcm"
const nonceLength = 12
const tagLength = 16

interface Kept {
  readonly key_version: number
  readonly terms: TokenTerms
  readonly minted_at: number
  readonly renewed_at: number
  /** The sealed text: nonce, ciphertext, tag. */
  readonly box: Buffer
  readonly holding: Holding
}

/**
 * The tokens that stored keys have signed, sealed under a key of this process. Invariant: at most one is kept of a credential,
 * for one key version and 80 % of its life, in memory that was admitted; what is let go of is zeroed.
 */
export class Tokens extends Context.Service<Tokens>()("byok/Tokens", {
  make: Effect.gen(function* () {
    const { hold } = yield* MemoryBudget
    const clock = yield* Clock.Clock
    const sealing = createSecretKey(randomBytes(32))
    const kept = new Map<CredentialId, Kept>()

    const wipe = (id: CredentialId) => {
      const one = kept.get(id)
      kept.delete(id)
      one?.box.fill(0)
      one?.holding.release()
    }

    const isFresh = ({ minted_at, renewed_at }: Kept) => {
      const now = clock.currentTimeMillisUnsafe()
      return minted_at <= now && now < renewed_at
    }

    const find = ({ credential_id, key_version }: Signer): Kept | undefined => {
      const one = kept.get(credential_id)
      if (one?.key_version === key_version && isFresh(one)) return one
      wipe(credential_id)
      return undefined
    }

    /** Keeps a token if there is room for it. */
    const keep = (signer: Signer, text: Buffer, minted_at: number, terms: TokenTerms) => {
      const { account_id, credential_id, key_version } = signer
      const holding = hold(account_id, "pool")
      if (!holding.grow(text.length + bytesOfKept, () => {})) return holding.release()
      const nonce = randomBytes(nonceLength)
      const cipher = createCipheriv(algorithm, sealing, nonce)
      const box = Buffer.concat([nonce, cipher.update(text), cipher.final(), cipher.getAuthTag()])
      const renewed_at = minted_at + keptPart * (terms.expires_at - minted_at)
      kept.set(credential_id, { key_version, terms, minted_at, renewed_at, box, holding })
      holding.spare(() => wipe(credential_id))
    }

    /** Hands out the kept token of a key. Returns false if there is none. */
    const open = (signer: Signer, fill: Fill): boolean => {
      const one = find(signer)
      if (one === undefined) return false
      const { box, holding, terms } = one
      const end = box.length - tagLength
      const decipher = createDecipheriv(algorithm, sealing, box.subarray(0, nonceLength))
      decipher.setAuthTag(box.subarray(end))
      const text = decipher.update(box.subarray(nonceLength, end))
      decipher.final()
      fill(text, terms)
      text.fill(0)
      holding.touch()
      return true
    }

    yield* Effect.addFinalizer(() => Effect.sync(() => Array.from(kept.keys()).forEach(wipe)))
    const wipeOld = Effect.sync(() => {
      for (const [id, one] of kept) if (!isFresh(one)) wipe(id)
    })
    yield* repeatInBackground("10 seconds", wipeOld, "Old tokens could not be wiped")

    return {
      isKept: (signer: Signer): boolean => find(signer) !== undefined,
      open,
      /**
       * Hands out the token of an opened key: a kept one, or one that the key signs now; a plain key goes out as it is. Returns
       * false if the key should sign a token and cannot.
       */
      sign: (signer: Signer, key: Buffer, fill: Fill): boolean => {
        if (open(signer, fill)) return true
        const cloudKey = cloudKeyIn(signer.provider, key.toString("utf8"))
        if (cloudKey === undefined) {
          fill(key)
          return true
        }
        if (Result.isFailure(cloudKey)) return false
        const token = mint(cloudKey.success, clock.currentTimeMillisUnsafe())
        if (token === undefined) return false
        const text = Buffer.from(token.text)
        const terms = { expires_at: token.expires_at, cloud: cloudOf(cloudKey.success) }
        keep(signer, text, token.minted_at, terms)
        fill(text, terms)
        text.fill(0)
        return true
      },
      wipe,
      /** Wipes the tokens of a pool that has left memory, except those of key versions that `stay`. */
      retain: (
        pool: ReadonlyArray<Pick<PooledCredential, "credential" | "key_version">>,
        stay?: ReadonlyMap<CredentialId, Pick<PooledCredential, "key_version">>
      ) => {
        for (const { credential, key_version } of kept.size === 0 ? [] : pool) {
          if (stay?.get(credential.id)?.key_version !== key_version) wipe(credential.id)
        }
      }
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}
