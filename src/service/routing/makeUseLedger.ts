import { Duration, Effect, Exit } from "effect"
import type { OwnedCredential } from "../../domain/Identifiers.ts"
import { type LastUse, laterUse, leasedAt, neverUsed, reportedAt } from "../../domain/routing/LastUse.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { CredentialUse, type UsedCredential } from "../../port/CredentialUse.ts"
import { repeatInBackground } from "../repeatInBackground.ts"
import type { LeaseTerms } from "./Lease.ts"

/** How long a use waits to be stored, so that a credential is written once in that time however often it is used. */
const interval = Duration.seconds(10)

/** How many credentials one statement writes. */
const maxBatch = 1000

/** How many credentials wait to be written. Uses of others are forgotten until these are. */
const maxWaiting = 20_000

const closingTimeout = "1 second"

const batchesOf = <A>(all: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> =>
  Array.from({ length: Math.ceil(all.length / maxBatch) }, (_, n) => all.slice(n * maxBatch, (n + 1) * maxBatch))

/**
 * Notes when credentials are leased, succeed and fail, and stores the times in the background and at the end. Nobody waits
 * for it. Times that cannot be stored are stored together with later ones.
 */
export const makeUseLedger = Effect.gen(function* () {
  const { store } = yield* CredentialUse
  const waiting = new Map<string, UsedCredential>()

  const note = ({ account_id, credential_id }: OwnedCredential, seen: LastUse) => {
    if (seen === neverUsed) return
    const name = `${account_id} ${credential_id}`
    const known = waiting.get(name)
    if (known === undefined && waiting.size >= maxWaiting) return
    waiting.set(name, { account_id, credential_id, ...laterUse(known ?? neverUsed, seen) })
  }

  const storeBatch = (names: ReadonlyArray<string>) =>
    Effect.suspend(() => {
      const uses: Array<UsedCredential> = []
      for (const name of names) {
        const use = waiting.get(name)
        if (use !== undefined) uses.push(use)
        waiting.delete(name)
      }
      const putBack = Effect.sync(() => uses.forEach((use) => note(use, use)))
      return Effect.onExit(store(uses), (exit) => (Exit.isSuccess(exit) ? Effect.void : putBack))
    })

  /** Each credential that waits now once, even if it is used again meanwhile. */
  const storeAll = Effect.suspend(() =>
    Effect.forEach(batchesOf(Array.from(waiting.keys())), storeBatch, { discard: true })
  )

  yield* Effect.addFinalizer(() => Effect.exit(Effect.timeout(storeAll, closingTimeout)))
  yield* repeatInBackground(interval, storeAll, "The last use of credentials could not be stored")

  return {
    leased: (terms: LeaseTerms): void => note(terms, leasedAt(terms.leased_at)),
    reported: (terms: LeaseTerms, outcome: Outcome, at: number): void => note(terms, reportedAt(outcome, at))
  }
})
