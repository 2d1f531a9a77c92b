import { Clock, DateTime, Effect, Option, Redacted, Result, Schema } from "effect"
import { CurrentPrincipal, type LinkPrincipal } from "../../../src/domain/Principal.ts"
import { LinkId } from "../../../src/domain/Identifiers.ts"
import { NewLink } from "../../../src/domain/Link.ts"
import { hashApiKey } from "../../../src/runtime/ApiKey.ts"
import { LinkRepository, PublicUrl } from "../../../src/port/Links.ts"
import { Accounts } from "../../../src/service/accounts/Accounts.ts"
import { Links } from "../../../src/service/links/Links.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { unknownId } from "../../support/http/Bodies.ts"
import { TestService } from "../../support/http/TestService.ts"
import { databaseContent, leakOf } from "../../support/keys/leakSearch.ts"
import { faultOf, withoutPrefix } from "../../support/keys/issuedKey.ts"
import { assert, layerLive } from "../../support/it.ts"
import { clockAhead } from "../../support/process/clockAhead.ts"
import { create } from "../../support/service/asTenant.ts"

const decode = Schema.decodeUnknownSync(NewLink)

const tokenIn = (url: Redacted.Redacted) => Redacted.value(url).split("#")[1] ?? ""

/** A link of a tenant with its token, and the actor of what is done by it. */
const linkFor = Effect.fnUntraced(function* (tenant: Parameters<typeof create>[0], asked: object) {
  const { create, find } = yield* Links
  const { expires_at, link_id, url } = yield* create(tenant.account_id, decode(asked))
  const token = Redacted.make(tokenIn(url))
  const found = yield* find(hashApiKey(token, "latin1"))
  const principal: LinkPrincipal = { ...Option.getOrThrow(found), kind: "link" }
  return {
    link_id,
    url,
    expires_at,
    token,
    by: Effect.provideService(CurrentPrincipal, principal)
  }
})

const stateOf = (token: Redacted.Redacted) =>
  Effect.flatMap(Links, ({ find }) =>
    Effect.map(
      find(hashApiKey(token, "latin1")),
      Option.map(({ state }) => state)
    )
  )

/** The service with a public URL. */
const atKeysExample = TestService.layerWith({
  settings: (settings) => ({ ...settings, publicUrl: Option.some("https://keys.example") })
})

layerLive(atKeysExample)("links", (it) => {
  it.effect("are stored by the hash of their token, which is in the URL fragment only, and are audited", function* () {
    const { newTenant, sql } = yield* TestService
    const tenant = yield* newTenant
    const { list } = yield* Links
    const asked = { purpose: "connect", provider: "openai", return_url: "https://gateway.example/keys" } as const
    const { link_id, token, url } = yield* linkFor(tenant, asked)
    assert.match(Redacted.value(url), /^https:\/\/keys\.example\/keys#byok_ln_[0-9A-Za-z]{49}$/)
    assert.isUndefined(faultOf(Redacted.value(token), "ln"))
    const content = yield* databaseContent(sql)
    assert.isUndefined(leakOf(content, [withoutPrefix(Redacted.value(token))]))
    assert.include(content, hashApiKey(token), "control")
    const [listed, ...others] = yield* list(tenant.account_id)
    assert.deepStrictEqual(others, [])
    assert.include(listed, { link_id, purpose: "connect", provider: "openai", workspace_id: tenant.workspace_id })
    const events = yield* eventsIn(sql)
    const { account_id, workspace_id } = tenant
    assert.deepInclude(events, {
      ...{ action: "link.create", account_id, workspace_id, link_id, purpose: "connect" },
      actor: { kind: "service" }
    })
  })

  it.effect("are not created without PUBLIC_URL", function* () {
    const { newTenant, sql } = yield* TestService
    const tenant = yield* newTenant
    const asked = { purpose: "connect", provider: "openai" } as const
    const links = yield* Effect.provideService(Links.make, PublicUrl, undefined)
    const refused = yield* Effect.flip(Effect.provideService(linkFor(tenant, asked), Links, links))
    assert(refused._tag === "InvalidParams")
    assert.match(refused.error.metadata.issues[0]?.message ?? "", /^needs PUBLIC_URL to be set for the service/)
    assert.lengthOf(yield* sql`SELECT 1 FROM links WHERE account_id = ${tenant.account_id}`, 0)
  })

  it.effect(
    "last an hour, or as requested; under a minute, over a day and other invalid members are refused",
    function* () {
      const tenant = yield* TestService.tenant
      const now = yield* DateTime.now
      for (const [asked, seconds] of [
        [{}, 3600],
        [{ expires_in: 86_400 }, 86_400]
      ] as const) {
        const { expires_at } = yield* linkFor(tenant, { purpose: "manage", ...asked })
        const lasts = DateTime.toEpochMillis(expires_at) - DateTime.toEpochMillis(now)
        assert.isTrue(Math.abs(lasts - seconds * 1000) < 10_000, String(lasts))
      }
      for (const asked of [
        { purpose: "manage", expires_in: 86_401 },
        { purpose: "manage", expires_in: 59 },
        { purpose: "manage", provider: "openai" },
        { purpose: "manage", credential_id: unknownId },
        { purpose: "replace" },
        { purpose: "replace", credential_id: unknownId, workspace_id: unknownId },
        { purpose: "connect", return_url: "javascript:alert(1)" },
        { purpose: "connect", return_url: "https://name:secret@gateway.example/" },
        { purpose: "admin" }
      ]) {
        assert.isTrue(Result.isFailure(Schema.decodeUnknownResult(NewLink)(asked)), JSON.stringify(asked))
      }
    }
  )

  it.effect.each(["365 days", "-365 days"] as const)(
    "last as long by the database's clock, though the instance's is off by %s",
    function* (by) {
      const tenant = yield* TestService.tenant
      const now = yield* DateTime.now
      const clock = yield* clockAhead(by)
      const { expires_at, token } = yield* Effect.provideService(
        linkFor(tenant, { purpose: "manage" }),
        Clock.Clock,
        clock
      )
      const lasts = DateTime.toEpochMillis(expires_at) - DateTime.toEpochMillis(now)
      assert.isTrue(Math.abs(lasts - 3_600_000) < 10_000, String(lasts))
      assert.deepStrictEqual(yield* stateOf(token), Option.some("open"))
    }
  )

  it("are refused with one issue for a return_url that is both too long and invalid", () => {
    const asked = { purpose: "manage", return_url: "x".repeat(2049) }
    const refused = Schema.decodeUnknownResult(NewLink, { errors: "all" })(asked)
    assert(Result.isFailure(refused))
    assert.lengthOf(String(refused.failure).match(/must be an address/g) ?? [], 1)
  })

  it.effect("are not created for a foreign workspace or credential, nor for an unknown account", function* () {
    const { newTenant } = yield* TestService
    const [tenant, other] = [yield* newTenant, yield* newTenant]
    const { id } = yield* create(other)
    const message = (asked: object) =>
      Effect.map(Effect.flip(linkFor(tenant, asked)), (error) =>
        error._tag === "InvalidParams" ? error.error.metadata.issues[0]?.message : error._tag
      )
    assert.deepStrictEqual(
      [
        yield* message({ purpose: "replace", credential_id: id }),
        yield* message({ purpose: "manage", workspace_id: other.workspace_id })
      ],
      ["is not a credential of this account", "is not a workspace of this account"]
    )
    const nobody = { account_id: LinkId.make(unknownId) as never }
    assert.strictEqual((yield* Effect.flip(linkFor(nobody, { purpose: "view" })))._tag, "NotKnown")
  })

  it.effect("lose their private keys when they end, and are deleted a week later or with their account", function* () {
    const { sql } = yield* TestService
    const [tenant, other] = [yield* TestService.newTenant, yield* TestService.newTenant]
    const { deleteExpired } = yield* LinkRepository
    const links = yield* Effect.forEach(["1 second", "6 days", "8 days"], (ago) =>
      Effect.tap(linkFor(tenant, { purpose: "manage" }), ({ link_id }) => {
        const at = sql`now() - ${ago}::interval`
        return sql`UPDATE links SET created_at = ${at} - interval '1 hour', expires_at = ${at} WHERE id = ${link_id}`
      })
    )
    const open = yield* linkFor(other, { purpose: "manage" })
    yield* deleteExpired
    const rows = yield* sql<{ id: string; has: boolean }>`
        SELECT id, sealed IS NOT NULL AS has FROM links WHERE account_id IN (${tenant.account_id}, ${other.account_id}) ORDER BY id`
    assert.deepStrictEqual(rows, [
      { id: links[0]?.link_id ?? "", has: false },
      { id: links[1]?.link_id ?? "", has: false },
      { id: open.link_id, has: true }
    ])
    const ended = [yield* linkFor(other, { purpose: "view" }), yield* linkFor(other, { purpose: "connect" })] as const
    for (const _ of ["first", "again"]) yield* (yield* Links).revoke(other.account_id, ended[0].link_id)
    yield* ended[1].by(create(other))
    const [used] = yield* sql`SELECT public_key, kek_id, wrapped_dek, sealed FROM links WHERE id = ${ended[1].link_id}`
    assert.deepStrictEqual(used, { public_key: null, kek_id: null, wrapped_dek: null, sealed: null })
    yield* (yield* Accounts).deleteAccount(other.account_id)
    const revoked = (yield* eventsIn(sql)).flatMap((event) =>
      event.action === "link.revoke" && event.account_id === other.account_id ? [event.link_id] : []
    )
    assert.deepStrictEqual(revoked, [ended[0].link_id, open.link_id], "each link that was open ends with an event")
    assert.deepStrictEqual(yield* stateOf(open.token), Option.none())
  })
})
