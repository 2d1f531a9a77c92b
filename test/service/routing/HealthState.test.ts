import { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import * as health from "../../../src/domain/routing/Health.ts"
import * as state from "../../../src/service/routing/HealthState.ts"
import { assert, describe, it } from "../../support/it.ts"

const leasedKey = (model: string, credential = 1) => ({
  account_id: AccountId.make("00000000-0000-7000-8000-00000000000a"),
  credential_id: CredentialId.make(`00000000-0000-7000-9000-${String(credential).padStart(12, "0")}`),
  key_version: 1,
  model,
  request_id: "a request"
})
const free = { whole: health.initialCooldown(1), model: health.initialCooldown(1) }
const hour = 60 * 60 * 1000
const nothing: health.Cooldowns = new Map()

describe("the health of keys in one process", () => {
  it("tracks at most 100 models of a key, and drops cooldowns an hour after their end to make room", () => {
    const { healthOf, report } = state.makeHealthState()
    const strikesOf = (model: string, now: number, credential = 1) =>
      healthOf(leasedKey(model, credential), nothing, now).model.strikes
    for (let n = 0; n <= 100; n += 1) report(leasedKey(`a/${n}`), free, { _tag: "Forbidden" }, 0, 0)
    assert.deepStrictEqual([strikesOf("a/99", 0), strikesOf("a/100", 0)], [1, 0])
    assert.strictEqual(healthOf(leasedKey("a/free"), nothing, 0).whole.strikes, 0, "models say nothing of the key")
    report(leasedKey("a/new"), free, { _tag: "Forbidden" }, 5000 + hour - 1, 5000 + hour - 1)
    assert.strictEqual(strikesOf("a/new", 5000 + hour - 1), 0)
    report(leasedKey("a/new"), free, { _tag: "Forbidden" }, 5000 + hour, 5000 + hour)
    assert.strictEqual(strikesOf("a/new", 5000 + hour), 1)
    report(leasedKey("a/0", 2), free, { _tag: "Rejected" }, 0, 0)
    for (let n = 0; n < 100; n += 1) report(leasedKey(`a/${n}`, 2), free, { _tag: "Forbidden" }, 0, 0)
    assert.strictEqual(strikesOf("a/99", 0, 2), 1, "beside the whole key")
  })

  it("lets one request try a key per model, epoch and number of strikes for 30 seconds (Q24)", () => {
    const { claimTrial, releaseTrial } = state.makeHealthState()
    const struck = (change: object = {}) => ({ ...free, model: { ...free.model, strikes: 1, ...change } })
    const of = (request_id: string, model = "a/one", credential = 1) => ({
      ...leasedKey(model, credential),
      request_id
    })
    const [mine, other] = [of("mine"), of("other")]
    assert.isTrue(claimTrial(mine, struck(), 1))
    assert.isTrue(claimTrial(of("other", "a/two"), struck(), 1))
    assert.isTrue(claimTrial(of("other", "a/one", 2), struck(), 1))
    for (const change of [{ epoch: 1 }, { strikes: 2 }]) assert.isTrue(claimTrial(other, struck(change), 1))
    releaseTrial(other, struck())
    assert.isFalse(claimTrial(other, struck(), 20_000))
    assert.isTrue(claimTrial(mine, struck(), 20_000), "a repeated call gets it again")
    assert.isFalse(claimTrial(other, struck(), 49_999))
    assert.isTrue(claimTrial(other, struck(), 50_000), "nobody settled it")
    for (const _ of ["first", "again"]) releaseTrial(other, struck())
    assert.isTrue(claimTrial(mine, struck(), 50_001))
    const both = { whole: struck().model, model: struck().model }
    assert.isTrue(claimTrial(of("mine", "a/one", 3), both, 50_001))
    assert.isFalse(claimTrial(of("other", "a/two", 3), both, 50_001), "the whole key is on trial")
    for (const one of [mine, other]) assert.isTrue(claimTrial(one, free, 50_001), "any number of leases of a free key")
  })

  it("returns the cooldowns that a report extended", () => {
    const { report } = state.makeHealthState()
    const grown = (model: string) => report(leasedKey(model), free, { _tag: "Forbidden" }, 0, 0).map((one) => one.model)
    assert.deepStrictEqual(grown("a/0"), ["a/0"])
    assert.deepStrictEqual(grown("a/0"), [])
    for (let n = 1; n < 100; n += 1) grown(`a/${n}`)
    assert.deepStrictEqual(grown("a/0"), [])
    assert.deepStrictEqual(grown("a/100"), [], "too many models")
  })

  it("records a rejection of the whole key even after 100 of its models were refused", () => {
    const { healthOf, report } = state.makeHealthState()
    const refuse = (tag: "Forbidden" | "Rejected", model: string, at = free) =>
      report(leasedKey(model), at, { _tag: tag }, 0, 0)
    for (let n = 0; n < 100; n += 1) refuse("Forbidden", `a/${n}`)
    assert.deepStrictEqual(
      refuse("Rejected", "a/new").map(({ model }) => model),
      [""]
    )
    const { whole } = healthOf(leasedKey("a/new"), nothing, 0)
    assert.deepInclude(whole, { cause: "rejected", strikes: 1, until: 60_000 })
    const success = report(
      leasedKey("a/stored"),
      { whole, model: { ...whole, cause: "forbidden" } },
      { _tag: "Succeeded" },
      60_000,
      60_000
    )
    assert.deepStrictEqual(
      success.map(({ cooldown, model }) => [model, cooldown.epoch]),
      [
        ["", 1],
        ["a/stored", 1]
      ]
    )
    assert.strictEqual(healthOf(leasedKey("a/new"), nothing, 60_000).whole.epoch, 1)
    assert.strictEqual(healthOf(leasedKey("a/stored"), nothing, 60_000).model.epoch, 0, "only the database knows")
  })

  it("is dropped for a key without a report for two hours", () => {
    const { healthOf, report } = state.makeHealthState()
    report(leasedKey("a/one"), free, { _tag: "Rejected" }, 0, 0)
    report(leasedKey("a/one", 2), free, { _tag: "Rejected" }, 0, 0)
    report(leasedKey("a/one"), free, { _tag: "Rejected" }, 2 * hour - 1, 2 * hour - 1)
    assert.strictEqual(healthOf(leasedKey("a/one", 2), nothing, 0).whole.strikes, 1)
    report(leasedKey("a/one", 3), free, { _tag: "Rejected" }, 2 * hour, 2 * hour)
    assert.deepStrictEqual(healthOf(leasedKey("a/one", 2), nothing, 0).whole, health.initialCooldown(1))
    assert.strictEqual(healthOf(leasedKey("a/one"), nothing, 2 * hour).whole.strikes, 1, "which was reported again")
  })

  it("is dropped for a model two hours after its last report, despite reports on other models (Q25)", () => {
    const { healthOf, report } = state.makeHealthState()
    const limited = { _tag: "Forbidden" } as const
    report(leasedKey("a/one"), free, limited, 0, 0)
    const onTrial = { ...free, model: { ...free.model, strikes: 1 } }
    report(leasedKey("a/one"), onTrial, { _tag: "Succeeded" }, hour, hour)
    const epochAt = (now: number) => healthOf(leasedKey("a/one"), nothing, now).model.epoch
    for (let at = 1.5 * hour; at < 4 * hour; at += hour) report(leasedKey("a/two"), free, limited, at, at)
    assert.deepStrictEqual([epochAt(3 * hour - 1), epochAt(3 * hour)], [1, 0])
  })

  it("is separate for credentials of two accounts with the same id", () => {
    const { healthOf, report } = state.makeHealthState()
    report(leasedKey("a/one"), free, { _tag: "Rejected" }, 0, 0)
    const other = { ...leasedKey("a/one"), account_id: AccountId.make("00000000-0000-7000-8000-00000000000b") }
    assert.strictEqual(healthOf(other, nothing, 0).whole.strikes, 0)
  })
})
