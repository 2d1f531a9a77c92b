import { Context, Effect, Layer } from "effect"
import { CurrentPrincipal } from "../../src/domain/Principal.ts"
import { AuditLog } from "../../src/port/AuditLog.ts"
import { Events } from "../../src/port/Events.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import * as EventsLive from "../../src/service/audit/Events.ts"
import { createdId, credentialIn, minimal, unknownId } from "../support/http/Bodies.ts"
import { assertInvalid } from "../support/http/Refusal.ts"
import { type Parts, type Tenant, TestService } from "../support/http/TestService.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, layerLive } from "../support/it.ts"

interface Shown {
  readonly id: string
  readonly at: string
  readonly action: string
  readonly credential_id?: string
  readonly provider?: string
  readonly label?: string
  readonly actor: { readonly kind: string; readonly api_key_hash?: string; readonly name?: string | null }
}

const events = (tenant: Tenant, query = "") =>
  Effect.map(tenant.events(query), (answer) => {
    assert.strictEqual(answer.status, 200, answer.body)
    return (JSON.parse(answer.body) as { readonly data: ReadonlyArray<Shown> }).data
  })
const actionsOf = (found: ReadonlyArray<Shown>) => found.map(({ action }) => action)

layerLive(TestService.layer)("GET /api/v1/byok/events", (it) => {
  it.effect("lists the events of a credential, newest first, and names the API key that deleted it", function* () {
    const tenant = yield* TestService.newTenant
    const answer = yield* tenant.create(minimal)
    const [id, label] = [createdId(answer), String(credentialIn(answer)["label"])]
    const { provider } = minimal
    const other = createdId(yield* tenant.create(minimal))
    yield* tenant.update(id, { key: "sk-9876543210-9876543210-WxYz" })
    yield* tenant.delete(id)
    const ofCredential = yield* events(tenant, `?credential_id=${id}`)
    const [deleted, ...before] = ofCredential
    const actor = { kind: "api_key", api_key_hash: tenant.management_key_hash, name: "first management key" }
    assert.deepInclude(deleted, { action: "credential.delete", credential_id: id, provider, actor })
    assert.deepStrictEqual(actionsOf(before), ["credential.update", "credential.rotate", "credential.create"])
    assert.deepStrictEqual(
      ofCredential.map(({ label }) => label),
      ["sk-...WxYz", "sk-...WxYz", "sk-...WxYz", label]
    )
    assert.deepStrictEqual(
      before.slice(0, 2).map(({ id }) => id.replace(before[0]?.id.slice(0, -2) ?? "none", "")),
      [".0", ".1"],
      "one transaction"
    )
    const all = yield* events(tenant)
    assert.deepStrictEqual(actionsOf(all).slice(-3), ["account.create", "workspace.create", "api_key.issue"])
    assert.lengthOf(all, 8)
    assert.isTrue(all.some(({ credential_id }) => credential_id === other))
    assert.isFalse(all.some((event) => "account_id" in event))
    assert.deepStrictEqual(yield* events(tenant, `?credential_id=${unknownId}`), [])
  })

  it.effect("shows each event once when paging forwards or backwards", function* () {
    const tenant = yield* TestService.newTenant
    for (let n = 0; n < 5; n++) yield* tenant.create(minimal)
    const all = yield* events(tenant, "?limit=100")
    const back: Array<Shown> = []
    for (let page = yield* events(tenant, "?limit=2"); page.length > 0;) {
      back.push(...page)
      page = yield* events(tenant, `?limit=2&before=${page.at(-1)?.id}`)
    }
    assert.deepStrictEqual(back, all)
    yield* eventually("the events are sealed", events(tenant, `?after=${all[1]?.id}`), ({ length }) => length === 1)
    const onward: Array<Shown> = []
    for (let page = yield* events(tenant, "?limit=2&after=0"); page.length > 0;) {
      onward.push(...page)
      page = yield* events(tenant, `?limit=2&after=${page.at(-1)?.id}`)
    }
    assert.deepStrictEqual(onward, yield* events(tenant, "?limit=100&after=0"))
    assert.sameDeepMembers(onward, [...all])
  })

  it.effect("shows an event by an operator without the operator's user name", function* () {
    const { revokeApiKey } = yield* Accounts
    const [tenant, accounts] = [yield* TestService.newTenant, yield* Accounts]
    const asOperator = Effect.provideService(CurrentPrincipal, { kind: "cli", user: "canary-user" })
    const { hash } = yield* asOperator(accounts.issueApiKey(tenant.account_id, { name: "of CI", role: "management" }))
    yield* tenant.create(minimal)
    yield* asOperator(revokeApiKey(hash))
    const answer = yield* tenant.events()
    assert.notInclude(answer.body, "canary-user")
    assert.deepInclude((yield* events(tenant))[0], { action: "api_key.revoke", actor: { kind: "cli" } })
  })

  it.effect("refuses unknown and invalid query parameters with 400 (D48)", function* () {
    const tenant = yield* TestService.tenant
    assertInvalid(
      yield* tenant.events("?limit=101&before=x"),
      {
        path: ["limit"],
        message: "must be an integer from 1 to 100, given once"
      },
      { path: ["before"], message: "must be the id of an event" }
    )
    assertInvalid(yield* tenant.events("?offset=1"), {
      path: ["offset"],
      message: "only credential_id, limit, before and after are parameters of events"
    })
  })

  it.effect("refuses the id of another account's event as one that does not exist (T6)", function* () {
    const [tenant, other] = [yield* TestService.newTenant, yield* TestService.newTenant]
    const [own] = yield* events(tenant)
    const [foreign] = yield* events(other)
    const message = "must be the id of an event of this account"
    for (const name of ["before", "after"]) {
      for (const id of [foreign?.id, `${unknownId}.0`, own?.id.replace(/.$/, "9")]) {
        assertInvalid(yield* tenant.events(`?${name}=${id}`), { path: [name], message })
      }
    }
    assertInvalid(yield* tenant.events(`?before=${own?.id}&after=0`), {
      path: ["before"],
      message: "cannot be combined with after"
    })
    assert.strictEqual((yield* tenant.events(`?before=${own?.id}`)).status, 200, "control")
  })

  it.effect("shows no event of another account, whatever the query parameters (T6)", () =>
    Effect.map(foreign, (found) => {
      assert.deepStrictEqual(found, [])
    })
  )
})

/** The events of another account that a tenant can see. */
const foreign = Effect.gen(function* () {
  const [owner, stranger] = [yield* TestService.newTenant, yield* TestService.newTenant]
  const id = createdId(yield* owner.create(minimal))
  const found = yield* Effect.forEach(["", `?credential_id=${id}`, "?after=0"], (query) => events(stranger, query))
  return found.flat().filter(({ credential_id }) => credential_id === id)
})

/** A build that forgets whose events are read. */
const forgetful = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const log = Context.get(parts, AuditLog)
  const forgetting = Context.add(parts, AuditLog, {
    ...log,
    read: ({ account_id: _, ...page }) => log.read(page)
  })
  return Context.add(
    parts,
    Events,
    yield* Effect.provideContext(Effect.provide(Events, Layer.fresh(EventsLive.layer)), forgetting)
  )
})

layerLive(TestService.layerWith({ parts: forgetful }))("control of the account check of events (T6)", (it) => {
  it.effect("a build that ignores the account shows another account's events (control)", () =>
    Effect.map(foreign, (found) => assert.isNotEmpty(found))
  )
})
