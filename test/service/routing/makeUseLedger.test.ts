import { Arbitrary, Duration, Effect, Exit, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import { ServiceUnavailable } from "../../../src/domain/Errors.ts"
import { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import {
  type LastUse,
  mergeUses,
  useFromLease,
  neverUsed,
  useFromOutcome
} from "../../../src/domain/routing/LastUse.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { CredentialUse, type UsedCredential } from "../../../src/port/CredentialUse.ts"
import { RequestTimeout } from "../../../src/runtime/Deadline.ts"
import type { LeaseTerms } from "../../../src/service/routing/Lease.ts"
import { makeUseLedger } from "../../../src/service/routing/ledgers.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { logLines } from "../../support/process/Recording.ts"
import { assert, describe, it } from "../../support/it.ts"

const idOf = (n: number) => `01935f6a-0000-7000-8000-${String(n).padStart(12, "0")}`

const termsOf = (n: number, leased_at: number): LeaseTerms => ({
  account_id: AccountId.make(idOf(0)),
  credential_id: CredentialId.make(idOf(n)),
  key_version: 1,
  label: "sk-...AbCd",
  provider: "openai",
  model: "a/model",
  region: null,
  keys: "as_stored",
  request_id: "a request",
  leased_at
})

interface Write {
  readonly at: number
  readonly uses: ReadonlyArray<UsedCredential>
}

/** A ledger over a store that keeps each write with its time. */
const begin = Effect.fnUntraced(function* (store: (at: number) => Effect.Effect<void, ServiceUnavailable>) {
  const now = yield* Effect.clockWith((clock) => Effect.succeed(() => clock.currentTimeMillisUnsafe()))
  const writes: Array<Write> = []
  const lines: Array<string> = []
  const port = Layer.mock(CredentialUse, {
    store: (uses) =>
      Effect.suspend(() => {
        const at = now()
        return Effect.map(store(at), () => {
          writes.push({ at, uses })
          return []
        })
      })
  })
  const scope = yield* Scope.make()
  const ledger = yield* makeUseLedger(() => assert.fail("a use was lost")).pipe(
    Effect.provide([port, logLines(lines), Layer.succeed(RequestTimeout, Duration.seconds(3))]),
    Scope.provide(scope)
  )
  return { ...ledger, writes, lines, now, close: Scope.close(scope, Exit.void) }
})

const outcomes: ReadonlyArray<Outcome | "leased"> = [
  "leased",
  { _tag: "Succeeded" },
  { _tag: "Rejected" },
  { _tag: "UpstreamFailed" },
  { _tag: "Abandoned" }
]

const event = Arbitrary.flatMap(integer(0, 2), (credential) =>
  Arbitrary.flatMap(integer(0, 12_000), (wait) =>
    Arbitrary.map(elementOf(outcomes), (what) => ({ credential, wait, what }))
  )
)

describe("the last use of credentials", () => {
  it.effect.prop(
    "is written at most once in 10 seconds per credential, and completely in the end, despite failures",
    [Arbitrary.array(event, { maxLength: 30 }), elementOf([true, false])],
    function* ([events, isFlaky]) {
      const { close, now, recordLease, recordOutcome, writes } = yield* begin((at) =>
        isFlaky && at % 3 === 1 ? new ServiceUnavailable() : Effect.void
      )
      const expected = new Map<string, LastUse>()
      for (const { credential, wait, what } of events) {
        yield* TestClock.adjust(wait)
        const terms = termsOf(credential, now())
        if (what === "leased") recordLease(terms)
        else recordOutcome(terms, what, now())
        const seen = what === "leased" ? useFromLease(now()) : useFromOutcome(what, now(), 1)
        if (seen === neverUsed) continue
        const known = expected.get(terms.credential_id) ?? neverUsed
        expected.set(terms.credential_id, mergeUses(known, seen))
      }
      yield* TestClock.adjust("1 minute")
      const stored = new Map<string, LastUse>()
      const lastWrite = new Map<string, number>()
      for (const { at, uses } of writes) {
        for (const { account_id: _, credential_id, ...use } of uses) {
          const before = lastWrite.get(credential_id)
          assert.isTrue(before === undefined || at - before >= 10_000, `${before} and ${at}`)
          lastWrite.set(credential_id, at)
          stored.set(credential_id, mergeUses(stored.get(credential_id) ?? neverUsed, use))
        }
      }
      assert.deepStrictEqual(stored, expected)
      const count = writes.length
      yield* close
      assert.lengthOf(writes, count, "nothing was left")
    }
  )
})
