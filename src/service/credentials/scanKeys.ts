import { Effect, Result } from "effect"
import { contextOf } from "../../domain/SealedKey.ts"
import { Cipher } from "../../port/Cipher.ts"
import { type KeyReference, LeakedKeys, type Suspect } from "../../port/LeakedKeys.ts"

/** Progress of a scan: credentials `searched` of `total`, and keys `opened`. */
export interface ScanProgress {
  readonly searched: number
  readonly opened: number
  readonly total: number
}

/** Maximum unopened credentials to list. */
const maxUnopened = 1000

/** Names the key of a suspect. */
export const referenceOf = ({ context: { account_id, id, workspace_id }, key_version }: Suspect): KeyReference => ({
  account_id,
  workspace_id,
  credential_id: id,
  key_version
})

/**
 * Makes a scan that opens the stored keys of all accounts, or only those that `labels` make suspects, and passes each to
 * `look` while it is open. Returns how many opened, and which did not.
 */
export const makeKeyScan = Effect.gen(function* () {
  const { read } = yield* Cipher
  const { countCredentials, scan } = yield* LeakedKeys
  return Effect.fnUntraced(function* (
    labels: ReadonlyArray<string> | undefined,
    look: (suspect: Suspect, key: Buffer) => void,
    onProgress: (progress: ScanProgress) => Effect.Effect<void>
  ) {
    const total = yield* countCredentials
    const unopened: Array<KeyReference & { readonly reason: string }> = []
    const counts = { searched: 0, opened: 0, unopened_total: 0 }
    let after: string | undefined
    do {
      const page = yield* scan({ after, labels })
      for (const suspect of page.suspects) {
        const result = read(suspect.sealed, contextOf(suspect.context), (key) => look(suspect, key))
        if (Result.isSuccess(result)) counts.opened += 1
        else {
          counts.unopened_total += 1
          if (unopened.length < maxUnopened) unopened.push({ ...referenceOf(suspect), reason: result.failure.message })
        }
      }
      counts.searched += page.searched
      yield* onProgress({ searched: counts.searched, opened: counts.opened, total })
      after = page.next
    } while (after !== undefined)
    /** `unopened` has the first keys that did not open, `unopened_total` counts all. */
    return { ...counts, unopened }
  })
})
