import { hash, timingSafeEqual } from "node:crypto"
import { Context, Effect, Layer, Redacted, Result } from "effect"
import { haveCommonSecret, hiddenSecretsIn, secretsIn, secretsOfLeak } from "../../domain/KeyMaterial.ts"
import { labelOf } from "../../domain/labelOf.js"
import { contextOf } from "../../domain/SealedKey.ts"
import { Cipher } from "../../port/Cipher.ts"
import { LeakedKeys, type Suspect } from "../../port/LeakedKeys.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { makeKeyScan, referenceOf, type ScanProgress } from "./scanKeys.ts"
import { openKey } from "./StoredKey.ts"

/** Progress of a search: also how many keys it has `found` to hold the leaked text. */
export interface LeakSearchProgress extends ScanProgress {
  readonly found: number
}

export interface LeakSearchOptions {
  /** The leaked text: a whole key, or a secret inside one. */
  readonly text: Redacted.Redacted
  /**
   * Opens every key, not only those whose label fits: labels may have been edited in the database, because the seal
   * does not cover them.
   */
  readonly all?: boolean
  /** Marks the found keys as leaked, so that no router uses them. */
  readonly park?: boolean
  readonly onProgress?: (progress: LeakSearchProgress) => Effect.Effect<void>
}

export type LeakSearchResult = Effect.Success<ReturnType<LeakResponse["Service"]["find"]>>

/** Finds the stored keys of all accounts that hold a leaked secret, and parks them on request. */
export class LeakResponse extends Context.Service<LeakResponse>()("byok/LeakResponse", {
  make: Effect.gen(function* () {
    const { conclude } = yield* LeakedKeys
    const scanKeys = yield* makeKeyScan

    const search = Effect.fnUntraced(function* (
      { all = false, onProgress = () => Effect.void, park = false }: LeakSearchOptions,
      secrets: ReadonlyArray<string>,
      leakedDigests: ReadonlyArray<Buffer>
    ) {
      /** Whether a secret is a leaked one. Compares it with all, in the same time for every result. */
      const isLeaked = (secret: Buffer | string) => {
        const digest = digestOf(secret)
        return leakedDigests.reduce((isEqual, other) => timingSafeEqual(digest, other) || isEqual, false)
      }
      /** Whether a key is a leaked secret, or JSON that contains one. */
      const holdsLeakedSecret = (provider: string, key: Buffer) =>
        isLeaked(key) ||
        (jsonStarts.has(key[0] ?? 0) &&
          secretsIn(provider, Redacted.make(key.toString("utf8"))).some((secret) => isLeaked(secret)))
      const holders: Array<Suspect> = []
      const { opened, searched, unopened, unopened_total } = yield* scanKeys(
        all ? undefined : secrets.map(labelOf),
        (suspect, key) => {
          if (holdsLeakedSecret(suspect.context.provider, key)) holders.push(suspect)
        },
        (progress) => onProgress({ ...progress, found: holders.length })
      )
      const keys = holders.map(referenceOf)
      const parked = yield* conclude({ keys, searched, park })
      return {
        searched,
        opened,
        /** `parked` tells whether the key is marked as leaked. */
        found: holders.map((suspect, index) => ({
          ...referenceOf(suspect),
          provider: suspect.context.provider,
          label: suspect.label,
          parked: parked[index] ?? false
        })),
        /** The first credentials that could not be opened and compared, and the number of all. */
        unopened,
        unopened_total
      }
    })

    return {
      find: Effect.fn("LeakResponse.find")(function* (options: LeakSearchOptions) {
        const secrets = secretsOfLeak(options.text)
        const leakedDigests = secrets.map(digestOf)
        return yield* Effect.ensuring(
          search(options, secrets, leakedDigests),
          Effect.sync(() => leakedDigests.forEach((digest) => digest.fill(0)))
        )
      })
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/**
 * Makes a check of whether a key shares a secret with one that is marked as leaked in its account. The check opens only
 * marked keys whose label fits, and ignores those that do not open.
 */
export const makeLeakCheck = Effect.gen(function* () {
  const cipher = yield* Cipher
  const { marked } = yield* LeakedKeys

  const sharesSecret = (
    suspects: Effect.Success<ReturnType<typeof marked>>,
    provider: string,
    key: Redacted.Redacted
  ) => {
    for (const { context, sealed } of suspects) {
      const opened = openKey(cipher, sealed, contextOf(context))
      if (Result.isSuccess(opened) && haveCommonSecret(provider, opened.success, key)) return true
    }
    return false
  }

  return (account_id: AccountId, provider: string, key: Redacted.Redacted) => {
    /** The labels of secrets as given and trimmed, because `haveCommonSecret` ignores white space at either end. */
    const labels = () => {
      const secrets = hiddenSecretsIn(provider, key).flatMap((secret) => [secret, secret.trim()])
      return Array.from(new Set(secrets.map(labelOf)))
    }
    return Effect.map(marked(account_id, labels), (suspects) => sharesSecret(suspects, provider, key))
  }
})

const digestOf = (secret: Buffer | string) => hash("sha256", secret, "buffer")

/** The first bytes of JSON texts that may contain a string. */
const jsonStarts = new Set(Buffer.from('\t\n\r "[{'))
