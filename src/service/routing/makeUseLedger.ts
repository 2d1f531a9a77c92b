import { Duration, Effect, Exit, References } from "effect"
import { type LastUse, laterUse, leasedAt, neverUsed, reportedAt } from "../../domain/routing/LastUse.ts"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import { CredentialUse, type UsedCredential } from "../../port/CredentialUse.ts"
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
 * Notes when credentials are leased, succeed and fail, and stores that in the background, and at the end. Nobody waits for
 * it. What cannot be stored is stored with what comes later.
 */
export const makeUseLedger = Effect.gen(function* () {
  const { store } = yield* CredentialUse
  const waiting = new Map<string, UsedCredential>()
  let isFailing = false

  const note = ({ account_id, credential_id }: Pick<UsedCredential, "account_id" | "credential_id">, seen: LastUse) => {
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

  const attempt = Effect.matchCauseEffect(storeAll, {
    onSuccess: () => Effect.sync(() => void (isFailing = false)),
    onFailure: (cause) => {
      const isFirst = !isFailing
      isFailing = true
      return isFirst ? Effect.logWarning("The last use of credentials could not be stored", cause) : Effect.void
    }
  })

  yield* Effect.addFinalizer(() => Effect.exit(Effect.timeout(storeAll, closingTimeout)))
  yield* Effect.forkScoped(
    Effect.provideService(
      Effect.forever(Effect.andThen(Effect.sleep(interval), attempt)),
      References.TracerEnabled,
      false
    )
  )

  return {
    leased: (terms: LeaseTerms): void => note(terms, leasedAt(terms.leased_at)),
    reported: (terms: LeaseTerms, outcome: Outcome, at: number): void => note(terms, reportedAt(outcome, at))
  }
})
