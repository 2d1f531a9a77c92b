import { assert } from "@effect/vitest"
import { Effect, Latch, Layer } from "effect"
import { AccountId, CredentialId, WorkspaceId } from "../../src/domain/Identifiers.ts"
import type { Outcome } from "../../src/domain/routing/Outcome.ts"
import { searchStart } from "../../src/domain/routing/planFor.ts"
import { initialCooldown } from "../../src/domain/routing/Health.ts"
import { Lease } from "../../src/service/routing/Lease.ts"
import type { PlannedRequest } from "../../src/service/routing/PlannedRequest.ts"
import { Router } from "../../src/service/routing/Router.ts"
import { LeaseRefused, PoolsUnavailable } from "../../src/service/routing/RouterErrors.ts"
import { makeWalk, type RouterOperations } from "../../src/service/routing/Walk.ts"
import { requestOf } from "../support/service/planning.ts"

const idOf = (n: number) => CredentialId.make(`00000000-0000-7000-9000-${String(n).padStart(12, "0")}`)

const owner = {
  account_id: AccountId.make("00000000-0000-7000-8000-00000000000a"),
  workspace_id: WorkspaceId.make("00000000-0000-7000-8000-00000000000b")
}

/** A plan of so many keys, and which of them get no lease. */
export const planOf = (
  keys: number,
  { account_id = owner.account_id, isRefused = (_n: number): boolean => false } = {}
): PlannedRequest => ({
  steps: Array.from({ length: keys }, (_, n) => ({
    _tag: "Own",
    provider: "azure",
    section: "prioritized",
    credential_id: idOf(n),
    key_version: 1,
    row: isRefused(n) ? "refused" : "1",
    region: null,
    on_trial: false
  })),
  providers: [],
  retry_at: null,
  request: { ...requestOf({ ...owner, account_id }), workspace_id: owner.workspace_id },
  freshness: 0,
  isEmpty: keys === 0,
  members: keys,
  start: { versions: "", position: searchStart }
})

/** A router whose leases are counted, whose answers can be held back, and whose database can be cut off. */
export const fakeRouter = () => {
  const leased = new Set<Lease>()
  const outcomes: Array<Outcome["_tag"]> = []
  const state = { away: false, latch: Latch.makeUnsafe(true), retryAt: null as number | null }
  /** Answers at once, as with keys in memory, unless held back. */
  const whenFree: Latch.Latch["whenOpen"] = (answer) => (state.latch.isOpen() ? answer : state.latch.whenOpen(answer))
  const lease: RouterOperations["lease"] = (_request, step, made) => {
    const answer = (): Effect.Effect<Lease, LeaseRefused | PoolsUnavailable> => {
      if (state.away) return Effect.fail(new PoolsUnavailable())
      if (step.row === "refused") return Effect.fail(new LeaseRefused({ reason: "parked" }))
      const { credential_id, key_version, provider, region } = step
      const terms = {
        credential_id,
        key_version,
        provider,
        region,
        model: "a/model",
        leased_at: 0,
        label: "",
        keys: "as_stored"
      } as const
      const health = { whole: initialCooldown(key_version), model: initialCooldown(key_version) }
      const lease = new Lease({ ...terms, account_id: owner.account_id }, health)
      lease.fill(Buffer.from("key"))
      leased.add(lease)
      made(lease)
      return Effect.succeed(lease)
    }
    return whenFree(Effect.suspend(answer))
  }
  const layer = Layer.mock(Router, {
    redact: (text) => text,
    walk: makeWalk({
      lease,
      search: ({ steps }) => ({
        restart: () => {},
        next: (isWanted) =>
          Effect.sync(() =>
            steps.find((step) => isWanted(step.provider, step._tag === "Own" ? step.credential_id : undefined))
          )
      }),
      retryAt: () => whenFree(Effect.sync(() => state.retryAt)),
      end: (lease, { _tag }) => {
        outcomes.push(_tag)
        assert.isTrue(leased.delete(lease), "an attempt is reported while its lease lasts")
        lease.wipe()
      }
    })
  })
  return { layer, leased, outcomes, state }
}
