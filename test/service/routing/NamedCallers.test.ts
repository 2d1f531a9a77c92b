import { DateTime, Duration, Effect, Layer } from "effect"
import { InvalidParams } from "../../../src/domain/Errors.ts"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { Explanations } from "../../../src/port/Explanations.ts"
import * as ExplanationsLive from "../../../src/service/routing/Explanations.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { addApiKey, newHash, newTenant } from "../../support/database/newTenant.ts"
import { inMemory } from "../../support/memory/inMemory.ts"
import { create } from "../../support/service/asTenant.ts"
import { planOf, requestOf } from "../../support/service/planning.ts"
import { assert, describe, itWith } from "../../support/it.ts"

const inService = itWith(Layer.provideMerge(Layer.merge(ExplanationsLive.layer, Router.layer), inMemory()))

/** An account whose only key serves one API key, and API keys that must not open it, by how they are refused. */
const restricted = Effect.gen(function* () {
  const { revokeApiKey } = yield* AccountRepository
  const [owner, stranger] = [yield* newTenant, yield* newTenant]
  const [allowed, revoked] = [yield* addApiKey(owner.account_id), yield* addApiKey(owner.account_id)]
  yield* create(owner, { allowed_api_key_hashes: [allowed, revoked] })
  yield* revokeApiKey(revoked, yield* DateTime.now)
  const refused = [
    ["revoked", revoked, "UnknownApiKey"],
    ["unknown", yield* newHash, "UnknownApiKey"],
    ["another account's", yield* addApiKey(stranger.account_id), "UnknownApiKey"],
    ["another account's viewer", yield* addApiKey(stranger.account_id, "viewer"), "UnknownApiKey"],
    ["a viewer", yield* addApiKey(owner.account_id, "viewer"), "ApiKeyMayNotRoute"],
    ["a management key", yield* addApiKey(owner.account_id, "management"), "ApiKeyMayNotRoute"]
  ] as const
  return { owner, allowed, refused }
})

describe("an API key that a request names beside its account", () => {
  inService("is looked up for each plan: it must be a live, ordinary key of the account", function* () {
    const { allowed, owner, refused } = yield* restricted
    for (const [name, api_key_hash, tag] of refused) {
      const error = yield* Effect.flip(planOf(owner, { api_key_hash }))
      assert.strictEqual(error._tag, tag, name)
    }
    assert.lengthOf((yield* planOf(owner, { api_key_hash: allowed })).steps, 2, "control")
    assert.lengthOf((yield* planOf(owner)).steps, 1, "control: without a key, only shared capacity")
  })

  inService("is looked up for each explanation, which names the member at fault", function* () {
    const { allowed, owner, refused } = yield* restricted
    const { explain } = yield* Explanations
    const asOwner = Effect.provideService(CurrentPrincipal, { kind: "in_process", account_id: owner.account_id })
    for (const [name, api_key_hash, tag] of refused) {
      const request = requestOf(owner, { api_key_hash })
      const error = yield* Effect.flip<unknown, unknown, CurrentPrincipal>(explain(request)).pipe(asOwner)
      assert(error instanceof InvalidParams, name)
      const message =
        tag === "UnknownApiKey"
          ? "is not an API key of this account"
          : "must be that of an ordinary API key: a management key or a viewer's cannot route"
      assert.deepStrictEqual(error.error.metadata.issues, [{ path: ["api_key_hash"], message }], name)
    }
    const { steps } = yield* asOwner(explain(requestOf(owner, { api_key_hash: allowed })))
    assert.lengthOf(steps, 2, "control")
  })

  inService(
    "is looked up for each attempt: it leases nothing once it is revoked, whatever the freshness",
    function* () {
      const { allowed, owner } = yield* restricted
      const { nextAttempt } = yield* Router
      const freshness = Duration.minutes(1)
      const next = Effect.scoped(nextAttempt(requestOf(owner, { api_key_hash: allowed }), [], { freshness }))
      assert.strictEqual((yield* next).attempt?.step._tag, "Own", "control")
      yield* (yield* AccountRepository).revokeApiKey(allowed, yield* DateTime.now)
      assert.strictEqual((yield* Effect.flip(next))._tag, "UnknownApiKey")
    }
  )
})
