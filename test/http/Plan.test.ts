import { isDeepStrictEqual } from "node:util"
import { Context, Effect, Layer } from "effect"
import { WorkspaceId } from "../../src/domain/Identifiers.ts"
import { CredentialPools, type PoolOwner } from "../../src/port/CredentialPools.ts"
import { Explanations } from "../../src/port/Explanations.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import * as ExplanationsLive from "../../src/service/routing/Explanations.ts"
import { Database } from "../../src/sql/connection/Database.ts"
import { raisePools } from "../support/database/raisePools.ts"
import { createdId, unknownId } from "../support/http/Bodies.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertHeaders, assertInvalid } from "../support/http/Refusal.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const key = "sk-0123456789-0123456789-AbCd"
const asked = { model: "openai/gpt-4o", targets: [{ provider: "azure" }] }

/** The plan of an answer, which must be one. */
const dataIn = (answer: Answer): unknown => {
  assert.strictEqual(answer.status, 200, answer.body)
  assertHeaders(answer)
  assert.notInclude(answer.body, key.slice(5, 20))
  return (JSON.parse(answer.body) as { readonly data: unknown }).data
}

/**
 * What a plan gives away of another account's pool: the parts of an answer that differ from that of an empty pool. Both
 * accounts have a workspace of one id, as ids are unique within an account only.
 */
const revealed = Effect.gen(function* () {
  const { sql } = yield* TestService
  const [victim, stranger] = [yield* TestService.newTenant, yield* TestService.newTenant]
  const { workspace_id } = victim
  const id = createdId(yield* victim.create({ provider: "azure", key, is_required: true, name: "Production" }))
  yield* sql`
    INSERT INTO workspaces (id, account_id, name, is_default, created_at)
    VALUES (${workspace_id}, ${stranger.account_id}, 'same id', false, now())`
  const [same, empty] = [yield* stranger.plan({ ...asked, workspace_id }), yield* stranger.plan(asked)]
  assert.include((yield* victim.plan(asked)).body, id, "the pool holds something")
  const [found, expected] = [dataIn(same), dataIn(empty)] as const
  const names = Object.keys(Object(expected) as object).filter((name) => name !== "workspace_id")
  return names.filter(
    (name) => !isDeepStrictEqual(Reflect.get(Object(found), name), Reflect.get(Object(expected), name))
  )
})

/** A service whose plans read the pool of a workspace of any account. */
const readsAnyonesPool = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const { load, versions, ...others } = Context.get(parts, CredentialPools)
  const { ask, sql } = Context.get(parts, Database).reads
  const ownerOf = ({ workspace_id = WorkspaceId.make(unknownId) }: Partial<PoolOwner>) =>
    Effect.map(
      ask(
        sql<PoolOwner>`
        SELECT account_id, id AS workspace_id FROM workspaces WHERE id = ${workspace_id} ORDER BY created_at LIMIT 1`,
        "tests.ask"
      ),
      ([owner]) => owner ?? assert.fail("no workspace")
    )
  const broken = Context.add(parts, CredentialPools, {
    ...others,
    load: (owner, ...asked) => Effect.flatMap(ownerOf(owner), (any) => load(any, ...asked)),
    versions: (owner, providers) =>
      owner.workspace_id === undefined
        ? versions(owner, providers)
        : Effect.map(
            Effect.flatMap(ownerOf(owner), (any) => versions(any, providers)),
            (found) => found
          )
  })
  const explaining = Layer.provide(Layer.fresh(ExplanationsLive.layer), Layer.succeedContext(broken))
  return Context.add(parts, Explanations, yield* Effect.provide(Explanations, explaining))
})

layerLive(TestService.layerWith({ parts: readsAnyonesPool }))("control of the account check of plans (T6)", (it) => {
  it.effect("a build that plans with any account's pool shows another account's keys (control)", () =>
    Effect.map(revealed, (names) => assert.deepStrictEqual(names, ["steps", "providers"]))
  )
})

layerLive(TestService.layer)("POST /api/v1/byok/plan", (it) => {
  it.effect("shows no credential of another account, even if both have a workspace with the same id (T6)", () =>
    Effect.map(revealed, (names) => assert.deepStrictEqual(names, []))
  )

  it.effect("leaves out a key once it is parked or altered and its pool's version rises (Q19, Q20, E16)", function* () {
    const { sql } = yield* TestService
    const { account_id, create, plan } = yield* TestService.newTenant
    const id = createdId(yield* create({ provider: "azure", key }))
    const stepsOf = (data: unknown) => (data as { readonly steps: ReadonlyArray<{ readonly kind: string }> }).steps
    assert.deepStrictEqual(
      stepsOf(dataIn(yield* plan(asked))).map(({ kind }) => kind),
      ["own", "shared"]
    )
    yield* sql`
        INSERT INTO credential_parkings
        VALUES (${account_id}, ${id}, '', 1, 'rejected', 1, '2100-01-01', now())`
    yield* raisePools(sql)
    const inAnHour = Date.now() + 3_600_000
    const isInAnHour = (until = "") => Math.abs(Date.parse(until) - inAnHour) < 30_000
    const parked = yield* plan(asked)
    assert.deepStrictEqual(stepsOf(dataIn(parked)), [{ kind: "shared", provider: "azure" }] as never)
    const { until } =
      /\{"reason":"parked","cause":"rejected","until":"(?<until>[^"]+)","message":"the upstream rejected the key; it is tried again at [\d-]{10}T[\d:]{8}Z"\}/.exec(
        parked.body
      )?.groups ?? {}
    assert.isTrue(isInAnHour(until), "no pause is longer, whatever the row says")
    const none = yield* plan({ ...asked, targets: [{ provider: "azure", endpoint: { shared: false } }] })
    assert.isTrue(isInAnHour(/"retry_at":"([^"]+)"/.exec(none.body)?.[1]))
    yield* sql`UPDATE credentials SET is_required = true WHERE id = ${id}`
    yield* raisePools(sql)
    const altered = yield* plan(asked)
    assert.deepStrictEqual(stepsOf(dataIn(altered)), [])
    assert.include(altered.body, '"seal":"altered"')
  })

  it.effect(
    "plans with the intact credentials despite a damaged row or a parking of unknown cause (R4, E16)",
    function* () {
      const { sql } = yield* TestService
      const { account_id, create, plan } = yield* TestService.newTenant
      const whole = createdId(yield* create({ provider: "azure", key }))
      const damaged = createdId(yield* create({ provider: "azure", key }))
      const damages = [
        ["created_at = 'infinity'", [1, true]],
        ["created_at = '-infinity'", [1, true]],
        ["allowed_models = '[0:0]={openai/gpt-4o}'", [null, false]],
        [`allowed_api_key_hashes = '{{${"a".repeat(64)},${"b".repeat(64)}}}'`, [null, false]]
      ] as const
      const positions = (answer: Answer) => {
        const { providers } = dataIn(answer) as {
          readonly providers: ReadonlyArray<{
            readonly credentials: ReadonlyArray<{ readonly credential_id: string; readonly position: number | null }>
            readonly shared: { readonly position: number | null }
          }>
        }
        const of = (id: string) => providers[0]?.credentials.find(({ credential_id }) => credential_id === id)?.position
        return { whole: of(whole), damaged: of(damaged), shared: providers[0]?.shared.position !== null }
      }
      yield* sql`CREATE TABLE kept AS SELECT * FROM credentials WHERE id = ${damaged}`
      for (const [damage, [position, shared]] of damages) {
        yield* sql.unsafe(`UPDATE credentials SET ${damage} WHERE id = '${damaged}'`)
        yield* raisePools(sql)
        assert.deepStrictEqual(positions(yield* plan(asked)), { whole: 0, damaged: position, shared }, damage)
        yield* sql`
          UPDATE credentials SET created_at = kept.created_at, allowed_models = kept.allowed_models,
            allowed_api_key_hashes = kept.allowed_api_key_hashes
          FROM kept WHERE credentials.id = kept.id`
        yield* raisePools(sql)
      }
      yield* sql`INSERT INTO credential_parkings
        VALUES (${account_id}, ${damaged}, '', 1, 'of_a_newer_version', 1, now() + interval '1 minute', now())`
      yield* raisePools(sql)
      assert.deepStrictEqual(positions(yield* plan(asked)), { whole: 0, damaged: null, shared: true })
      yield* sql`DROP TABLE kept`
    }
  )

  it.effect("refuses to explain more than 5,000 credentials with 400 (R4)", function* () {
    const { sql } = yield* TestService
    const { account_id, create, plan } = yield* TestService.newTenant
    for (const provider of ["azure", "xai"]) yield* create({ provider, key })
    yield* sql`
        INSERT INTO credentials SELECT (jsonb_populate_record(credentials, jsonb_build_object(
          'id', gen_random_uuid(), 'sort_order', n
        ))).* FROM credentials, generate_series(1, 2500) AS n WHERE account_id = ${account_id}`
    yield* sql`UPDATE pools SET members = 2501, version = version + 1 WHERE account_id = ${account_id}`
    const targets = [{ provider: "azure" }, { provider: "xai" }]
    const message = "must name fewer providers: these have more than 5000 credentials"
    assertInvalid(yield* plan({ ...asked, targets }), { path: ["targets"], message })
    assert.strictEqual((yield* plan(asked)).status, 200, "control")
  })

  it.effect.each([
    [{ targets: asked.targets }, [{ path: ["model"], message: "is required" }]],
    [
      { ...asked, targets: [{ provider: "azure", shared: false }] },
      [{ path: ["targets", 0, "shared"], message: "unknown member; known: provider, endpoint" }]
    ],
    [{ ...asked, workspace_id: "x" }, [{ path: ["workspace_id"], message: "must be a UUID" }]],
    [{ ...asked, workspace_id: unknownId }, [{ path: ["workspace_id"], message: "is not a workspace of this account" }]]
  ] as const)("refuses the body %j with 400 (D7, E19, Q31)", function* ([body, issues]) {
    const { plan } = yield* TestService.tenant
    assertInvalid(yield* plan(body), ...issues)
  })

  it.effect("answers the same 400 for a foreign, an unknown and a deleted workspace (E19, D6, T6)", function* () {
    const [owner, stranger] = [yield* TestService.newTenant, yield* TestService.newTenant]
    yield* owner.create({ provider: "azure", key, is_required: true })
    const accounts = yield* Accounts
    const { workspace_id: deleted } = yield* accounts.createWorkspace(stranger.account_id, "deleted")
    dataIn(yield* stranger.plan({ ...asked, workspace_id: deleted }))
    yield* accounts.deleteWorkspace(deleted)
    const bodies = yield* Effect.forEach([owner.workspace_id, deleted, unknownId], (workspace_id) =>
      Effect.map(stranger.plan({ ...asked, workspace_id }), ({ body, status }) => `${status} ${body}`)
    )
    assert.strictEqual(new Set(bodies).size, 1, bodies.join("\n"))
    assert.match(bodies[0] ?? "", /^400 /)
    const own = yield* stranger.plan(asked)
    assert.include(own.body, '"credentials":[],"shared":{"position":0,"removed":[]}')
    assert.include((yield* owner.plan(asked)).body, '"reason":"is_required"', "control")
    yield* accounts.deleteWorkspace(stranger.workspace_id)
    assertInvalid(yield* stranger.plan(asked), {
      path: ["workspace_id"],
      message: "is required: the default workspace is deleted"
    })
  })
})
