import { Effect, Result } from "effect"
import { Cipher } from "../../src/port/Cipher.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { Links } from "../../src/service/links/Links.ts"
import { contextOf } from "../../src/domain/SealedKey.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { createdId, minimal, statusesOf } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { openLink, pageWith, seal } from "./browser.ts"

const key = "sk-owner-0123456789-0123456789-WxYz"
const other = "sk-other-0123456789-0123456789-QrSt"

const notSealed = "The key was not sealed for this link as it is now. Nothing was stored: send the key again."

/** The provider key that is stored. */
const keyOf = Effect.fnUntraced(function* (account_id: never, id: string) {
  const found = yield* (yield* CredentialRepository).findSealed(account_id, id as never)
  if (found._tag === "None") return assert.fail("no credential")
  const { credential, sealed } = found.value
  const { read } = yield* Cipher
  return Result.getOrThrow(read(sealed, contextOf({ ...credential, account_id }), (key) => key.toString("utf8")))
})

layerLive(TestService.layer)("the API of the owner's page", (it) => {
  it.effect("describes a connect link, stores its key, and then refuses the link as used", function* () {
    const tenant = yield* TestService.newTenant
    const { ask, create, about } = yield* openLink(tenant, {
      ...{ purpose: "connect", provider: "openai", return_url: "https://gateway.example/" }
    })
    assert.deepInclude(yield* about as Effect.Effect<object>, {
      ...{ purpose: "connect", provider: "openai", credential_id: null, return_url: "https://gateway.example/" },
      ...{
        account_name: "a test account",
        workspace_name: "default",
        workspace_id: tenant.workspace_id,
        providers: []
      }
    })
    const { data, status, text } = yield* create(key, "openai", "Production")
    assert.strictEqual(status, 201, text)
    const made = data as Readonly<Record<string, unknown>>
    assert.deepInclude(made, {
      name: "Production",
      label: "sk-...WxYz",
      provider: "openai",
      workspace_id: tenant.workspace_id
    })
    assert.strictEqual(yield* keyOf(tenant.account_id as never, String(made["id"])), key)
    assert.notInclude(text, "0123456789")
    const again = yield* ask("GET", "/link")
    assert.deepStrictEqual(
      [again.status, again.error?.message, again.error?.metadata],
      [401, "This link was used. Ask for a new one.", { stored: { provider: "openai", label: "sk-...WxYz" } }]
    )
    const path = `/api/v1/byok/${String(made["id"])}`
    yield* tenant.update(String(made["id"]), { key: other })
    assert.deepStrictEqual(
      (yield* ask("GET", "/link")).error?.metadata,
      { stored: { provider: "openai", label: "sk-...WxYz" } },
      "it was replaced since"
    )
    yield* tenant.send({ method: "DELETE", path })
    assert.isUndefined((yield* ask("GET", "/link")).error?.metadata, "deleted since")
  })

  it.effect("stores one credential per idempotency key, though each attempt seals the provider key anew", function* () {
    const tenant = yield* TestService.newTenant
    const { about, ask } = yield* openLink(tenant, { purpose: "manage" })
    const send = Effect.fnUntraced(function* (key: string) {
      const sealed_key = yield* seal(yield* about, key, "openai")
      return yield* ask("POST", "/byok", { provider: "openai", name: null, sealed_key }, "one-form")
    })
    const [first, again] = yield* TestService.storing(1, Effect.all([send(key), send(key)]))
    assert.deepStrictEqual([again.status, again.data], [201, first.data])
    assert.strictEqual((yield* TestService.storing(0, send(other))).status, 409, "another key (control)")
  })

  it.effect("replaces the token of a manage link once, and then accepts the new token only", function* () {
    const tenant = yield* TestService.newTenant
    const link = yield* openLink(tenant, { purpose: "manage" })
    const [mine, late] = ["m", "l"].map((letter) => letter.repeat(43)) as [string, string]
    const exchange = (token: string) => link.ask("PUT", "/link/token", { token })
    const race = yield* Effect.forEach([mine, late], exchange, { concurrency: 2 })
    assert.deepStrictEqual(race.map(({ status }) => status).sort(), [200, 401])
    const [kept, lost] = race[0]?.status === 200 ? [mine, late] : [late, mine]
    const page = yield* pageWith(kept)
    assert.strictEqual((yield* page.create(key)).status, 201)
    assert.strictEqual((yield* link.ask("GET", "/byok")).status, 401)
    assert.strictEqual((yield* (yield* pageWith(lost)).ask("GET", "/byok")).status, 401)
    assert.strictEqual((yield* page.ask("PUT", "/link/token", { token: "short" })).status, 400)
    const once = yield* openLink(tenant, { purpose: "connect" })
    assert.strictEqual((yield* once.ask("PUT", "/link/token", { token: late })).status, 403, "serves once anyway")
  })

  it.effect("allows only renaming and deleting a credential whose stored key cannot be opened (L7)", function* () {
    const { sql } = yield* TestService
    const tenant = yield* TestService.newTenant
    const id = createdId(yield* tenant.create(minimal))
    const { ask, replace } = yield* openLink(tenant, { purpose: "manage" })
    yield* sql`UPDATE credentials SET allowed_models = '{x}' WHERE id = ${id}`
    const message = "The stored key cannot be opened, so this credential can only be renamed or deleted"
    for (const asked of [ask("PATCH", `/byok/${id}`, { disabled: true }), replace(id, key)]) {
      const { error, status } = yield* asked
      assert.deepStrictEqual([status, error?.message], [409, message])
    }
    const asTenant = yield* tenant.update(id, { disabled: true })
    assert.deepStrictEqual([asTenant.status, JSON.parse(asTenant.body)], [409, { error: { code: 409, message } }])
    assert.strictEqual((yield* ask("PATCH", `/byok/${id}`, { name: "n" })).status, 200)
    assert.strictEqual((yield* ask("DELETE", `/byok/${id}`)).status, 200)
  })

  it.effect("refuses an invalid field by name, stores nothing, and keeps the link open", function* () {
    const tenant = yield* TestService.newTenant
    const { ask, about, create } = yield* openLink(tenant, { purpose: "connect" })
    assert.isAbove((yield* about).providers.length, 100)
    const issues = (error: unknown) => (error as { metadata: { issues: unknown } }).metadata.issues
    yield* TestService.storing(
      0,
      Effect.gen(function* () {
        assert.deepStrictEqual(issues((yield* create(`Bearer ${key}`)).error), [
          { path: ["key"], message: "must not have a scheme such as Bearer before it" }
        ])
        assert.deepStrictEqual(issues((yield* create(key, "openai", "n".repeat(256))).error), [
          { path: ["name"], message: "must have at most 255 characters" }
        ])
        const { status } = yield* ask("POST", "/byok", {
          provider: "nobody",
          name: null,
          sealed_key: { enc: "", ciphertext: "" }
        })
        assert.strictEqual(status, 400)
      })
    )
    assert.strictEqual((yield* create(key)).status, 201)
  })

  it.effect(
    "a replace link stores one key, in the credential of the link, even if it equals the stored key",
    function* () {
      const { sql } = yield* TestService
      const tenant = yield* TestService.newTenant
      const id = createdId(yield* tenant.create({ ...minimal, disabled: true, name: "before" }))
      const second = createdId(yield* tenant.create(minimal))
      const { ask, link_id, replace, sealedNow } = yield* openLink(tenant, { purpose: "replace", credential_id: id })
      const refused = [ask("GET", `/byok/${second}`), replace(second, key), ask("DELETE", `/byok/${id}`)]
      assert.deepStrictEqual(statusesOf(yield* Effect.all(refused)), [404, 404, 403])
      for (const more of [{ disabled: false }, { name: "after" }]) {
        const sealed_key = yield* sealedNow(key, "openai", id)
        const { status, text } = yield* ask("PATCH", `/byok/${id}`, { sealed_key, ...more })
        assert.strictEqual(status, 400, text)
        assert.include(text, `"path":["${Object.keys(more).join()}"]`)
      }
      assert.strictEqual(yield* keyOf(tenant.account_id as never, id), minimal.key, "nothing was stored")
      const { data, status } = yield* replace(id, minimal.key)
      assert.strictEqual(status, 200)
      assert.deepInclude(data as object, { disabled: true, name: "before" })
      const again = yield* ask("GET", "/link")
      assert.deepStrictEqual([again.status, again.error?.message], [401, "This link was used. Ask for a new one."])
      const acts = (yield* eventsIn(sql)).filter(({ actor }) => actor.kind === "link" && actor.link_id === link_id)
      assert.deepStrictEqual(
        acts.map(({ action }) => action),
        ["credential.update", "credential.rotate"]
      )
      assert.strictEqual(yield* keyOf(tenant.account_id as never, id), minimal.key)
      const manage = yield* openLink(tenant, { purpose: "manage" })
      const switched = yield* manage.ask("PATCH", `/byok/${id}`, { disabled: false, name: "after" })
      assert.deepInclude(switched.data as object, { disabled: false, name: "after" }, "control")
    }
  )

  it.effect("refuses a key that is not UTF-8, stores nothing, and keeps the link open", function* () {
    const tenant = yield* TestService.newTenant
    const { about, ask, create } = yield* openLink(tenant, { purpose: "connect" })
    const send = (bytes: ReadonlyArray<number>) =>
      Effect.flatMap(
        Effect.flatMap(about, (about) => seal(about, Buffer.from(bytes), "openai")),
        (sealed_key) => ask("POST", "/byok", { provider: "openai", name: null, sealed_key })
      )
    const text = Array.from(Buffer.from(key))
    for (const bytes of [
      [...text, 0xff],
      [0xc3, ...text],
      [...text, 0xed, 0xa0, 0x80]
    ]) {
      const { error, status } = yield* TestService.storing(0, send(bytes))
      assert.strictEqual(status, 400)
      assert.deepStrictEqual(error?.metadata, { issues: [{ path: ["key"], message: "must be UTF-8" }] })
    }
    assert.strictEqual((yield* create(key)).status, 201, "control")
  })

  it.effect("lists, explains, orders, changes and deletes keys by a manage link, with the link as actor", function* () {
    const { sql } = yield* TestService
    const tenant = yield* TestService.newTenant
    const { ask, create, link_id, replace } = yield* openLink(tenant, { purpose: "manage" })
    const ids: Array<string> = []
    for (const name of ["one", "two"])
      ids.push((((yield* create(key, "openai", name)).data ?? {}) as { id: string }).id)
    const [one = "", two = ""] = ids
    assert.strictEqual((yield* ask("PUT", "/byok/order", { provider: "openai", ids: [two, one] })).status, 200)
    assert.strictEqual((yield* ask("PATCH", `/byok/${one}`, { name: "first", disabled: true })).status, 200)
    assert.strictEqual((yield* replace(two, other)).status, 200)
    const list = (yield* ask("GET", "/byok?limit=10")).data as ReadonlyArray<Record<string, unknown>>
    assert.deepStrictEqual(
      list.map(({ disabled, label, name, sort_order }) => [name, label, disabled, sort_order]),
      [
        ["first", "sk-...WxYz", true, 1],
        ["two", "sk-...QrSt", false, 0]
      ]
    )
    const plan = { model: "a/model", targets: [{ provider: "openai" }] }
    assert.include((yield* ask("POST", "/byok/plan", plan)).text, `"${one}"`)
    assert.deepInclude((yield* ask("GET", `/byok/${one}/status`)).data as object, { state: "disabled" })
    const events = (yield* ask("GET", `/byok/events?credential_id=${two}`)).text
    assert.include(events, `"kind":"link","link_id":"${link_id}"`)
    assert.strictEqual((yield* ask("DELETE", `/byok/${one}`)).status, 200)
    const acts = (yield* eventsIn(sql)).filter(({ actor }) => actor.kind === "link" && actor.link_id === link_id)
    assert.deepStrictEqual(
      acts.map(({ action }) => action),
      [
        "credential.create",
        "credential.create",
        "credential.reorder",
        "credential.update",
        "credential.update",
        "credential.rotate",
        "credential.delete"
      ]
    )
  })

  it.effect("through a manage link, lists API keys, and changes restrictions and flags", function* () {
    const tenant = yield* TestService.newTenant
    const id = createdId(yield* tenant.create(minimal))
    const { hash } = yield* Effect.orDie(
      (yield* Accounts).issueApiKey(tenant.account_id, { name: "a client", role: "ordinary" })
    )
    const { ask } = yield* openLink(tenant, { purpose: "manage" })
    assert.deepStrictEqual((yield* ask("GET", "/api-keys")).data, [{ hash, name: "a client" }], "no management key")
    const settings = {
      ...{ allowed_models: ["a/model"], allowed_user_ids: ["u"], allowed_api_key_hashes: [hash] },
      ...{ is_byok_only: true, declared_zdr: true }
    }
    const changed = yield* ask("PATCH", `/byok/${id}`, settings)
    assert.deepInclude(changed.data as object, settings, changed.text)
    const clash = yield* ask("PATCH", `/byok/${id}`, { is_fallback: true })
    assert.deepStrictEqual(
      [clash.status, (clash.error?.metadata as { issues: unknown }).issues],
      [400, [{ path: ["is_fallback"], message: "cannot be combined with is_byok_only" }]]
    )
    const looking = yield* openLink(tenant, { purpose: "view" })
    assert.strictEqual((yield* looking.ask("PATCH", `/byok/${id}`, settings)).status, 403)
    const once = yield* openLink(tenant, { purpose: "connect" })
    assert.strictEqual((yield* once.ask("GET", "/api-keys")).status, 403)
  })

  it.effect("answers 404 for credentials outside the link's workspace and account", function* () {
    const { sql } = yield* TestService
    const [tenant, foreign] = [yield* TestService.newTenant, yield* TestService.newTenant]
    const workspace_id = "019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88"
    yield* sql`INSERT INTO workspaces VALUES (${workspace_id}, ${tenant.account_id}, 'n', false, now(), NULL)`
    const elsewhere = createdId(yield* tenant.create({ ...minimal, workspace_id }))
    const foreigner = createdId(yield* foreign.create(minimal))
    const { ask, replace } = yield* openLink(tenant, { purpose: "manage" })
    for (const id of [elsewhere, foreigner]) {
      const statuses = yield* Effect.forEach(
        [
          ask("GET", `/byok/${id}`),
          ask("GET", `/byok/${id}/status`),
          ask("GET", `/byok/events?credential_id=${id}`)
        ].concat([ask("PATCH", `/byok/${id}`, { disabled: true }), replace(id, key), ask("DELETE", `/byok/${id}`)]),
        Effect.map(({ status }) => status)
      )
      assert.deepStrictEqual(
        statuses,
        Array.from({ length: 6 }, () => 404)
      )
    }
    assert.deepStrictEqual((yield* ask("GET", `/byok?workspace_id=${workspace_id}`)).data, [])
  })

  it.effect(
    "refuses an altered, cut, replayed or foreign sealed key with 409 and the same message, storing nothing",
    function* () {
      const tenant = yield* TestService.newTenant
      const { about, ask, create } = yield* openLink(tenant, { purpose: "manage" })
      const id = createdId(yield* tenant.create(minimal))
      const foreign = yield* openLink(tenant, { purpose: "manage" })
      const send = (sealed_key: object, provider = "openai") =>
        ask("POST", "/byok", { provider, name: null, sealed_key })
      const said = Effect.map(({ error, status }: { error: { message: string } | undefined; status: number }) => [
        status,
        error?.message
      ])
      yield* TestService.storing(
        0,
        Effect.gen(function* () {
          const sealed = yield* seal(yield* about, key, "openai")
          assert.deepStrictEqual(yield* said(send(sealed, "azure")), [409, notSealed], "another provider")
          const forCredential = yield* seal(yield* about, key, "openai", id)
          assert.deepStrictEqual(yield* said(send(forCredential)), [409, notSealed], "a replacement as a new one")
          const cut = yield* seal(yield* about, key, "openai")
          const shorter = { ...cut, ciphertext: cut.ciphertext.slice(0, -4) }
          assert.deepStrictEqual(yield* said(send(shorter)), [409, notSealed], "cut")
          assert.deepStrictEqual(yield* said(send({ ...cut, enc: "AAAA" })), [409, notSealed], "no point of the curve")
          const others = yield* seal(yield* foreign.about, key, "openai")
          assert.deepStrictEqual(yield* said(send(others)), [409, notSealed], "another link's")
          const lying = yield* seal({ ...(yield* about), account_id: id as never }, key, "openai")
          assert.deepStrictEqual(yield* said(send(lying)), [409, notSealed], "another account's")
        })
      )
      const good = yield* seal(yield* about, key, "openai")
      yield* TestService.storing(1, send(good))
      assert.deepStrictEqual(yield* TestService.storing(0, said(send(good))), [409, notSealed], "a replay")
      assert.strictEqual((yield* create(key)).status, 201, "control")
    }
  )

  it.effect.each<readonly [what: string, column: string]>([
    ["public key", "public_key"],
    ["provider", "provider"],
    ["purpose", "purpose"]
  ])("hands out no public key of a link whose %s was edited in the database, and ends it (T2)", function* ([, column]) {
    const { sql } = yield* TestService
    const tenant = yield* TestService.newTenant
    const edited = { public_key: "decode(repeat('04', 65), 'hex')", provider: "'azure'", purpose: "'manage'" }[column]
    const { about, ask, create, link_id } = yield* openLink(tenant, { purpose: "connect", provider: "openai" })
    const [intact] = yield* sql`SELECT public_key FROM links WHERE id = ${link_id}`
    assert.strictEqual((yield* about).public_key, Buffer.from(intact?.["public_key"] as never).toString("base64url"))
    yield* sql.unsafe(`UPDATE links SET ${column} = ${edited} WHERE id = '${link_id}'`)
    const asked = yield* ask("GET", "/link")
    const altered = "This link was altered. Nothing was stored: ask for a new one."
    assert.deepStrictEqual([asked.status, asked.error?.message], [401, altered])
    assert.notInclude(asked.text, "public_key")
    const { error, status } = yield* ask("GET", "/link")
    assert.deepStrictEqual([status, error?.message], [401, "This link was revoked. Ask for a new one."])
    const acts = (yield* eventsIn(sql)).filter((event) => "link_id" in event && event.link_id === link_id)
    assert.deepStrictEqual(
      acts.map(({ action, actor }) => [action, actor.kind]),
      [
        ["link.create", "service"],
        ["link.altered", "service"]
      ]
    )
    const other = yield* openLink(tenant, { purpose: "connect", provider: "openai" })
    assert.strictEqual((yield* other.create(key)).status, 201, "control")
    assert.strictEqual((yield* Effect.exit(create(key)))._tag, "Failure")
  })

  it.effect("opens nothing that was sealed for a key pair that another's replaced in the database (T2)", function* () {
    const { sql } = yield* TestService
    const tenant = yield* TestService.newTenant
    const { about, ask, link_id } = yield* openLink(tenant, { purpose: "connect" })
    const sealed_key = yield* seal(yield* about, key, "openai")
    const foreign = yield* openLink(tenant, { purpose: "connect" })
    yield* sql`
      UPDATE links SET (public_key, kek_id, wrapped_dek, sealed) =
        (SELECT public_key, kek_id, wrapped_dek, sealed FROM links WHERE id = ${foreign.link_id})
      WHERE id = ${link_id}`
    const { error, status } = yield* TestService.storing(
      0,
      ask("POST", "/byok", { provider: "openai", name: null, sealed_key })
    )
    const altered = "This link was altered. Nothing was stored: ask for a new one."
    assert.deepStrictEqual([status, error?.message], [401, altered])
    assert.include(
      (yield* eventsIn(sql)).map((event) => ("link_id" in event && event.link_id === link_id ? event.action : "")),
      "link.altered"
    )
  })

  it.effect("refuses used, revoked, expired and unknown links, and API keys, and says why", function* () {
    const { sql } = yield* TestService
    const tenant = yield* TestService.newTenant
    const [used, revoked, expired] = [
      yield* openLink(tenant, { purpose: "connect" }),
      yield* openLink(tenant, { purpose: "manage" }),
      yield* openLink(tenant, { purpose: "view" })
    ]
    yield* used.create(key)
    yield* (yield* Links).revoke(tenant.account_id, revoked.link_id)
    yield* sql`UPDATE links SET created_at = now() - interval '1 hour', expires_at = now() WHERE id = ${expired.link_id}`
    const pages = [used, revoked, expired]
    for (const token of ["", "byok_ln_nothing", tenant.management_key])
      pages.push({ ...used, ...(yield* pageWith(token)) })
    const messages = yield* TestService.storing(
      0,
      Effect.forEach(pages, ({ ask }) =>
        Effect.map(ask("DELETE", `/byok/${tenant.account_id}`), ({ error }) => error?.message)
      )
    )
    const unknown =
      "This link is unknown, or was already opened in another window. Continue there, or ask for a new one."
    assert.deepStrictEqual(messages, [
      "This link was used. Ask for a new one.",
      "This link was revoked. Ask for a new one.",
      "This link has expired. Ask for a new one.",
      ...[unknown, unknown, unknown]
    ])
    const asTenant = yield* tenant.send({ path: "/api/v1/byok", headers: [] })
    assert.strictEqual(asTenant.status, 200, "control")
    const { url } = yield* TestService
    const link = yield* openLink(tenant, { purpose: "manage" })
    const refused = yield* Effect.promise(() =>
      fetch(`${url}/api/v1/byok`, { headers: { authorization: `Bearer ${link.token}` } })
    )
    assert.strictEqual(refused.status, 401, "a link is no management key")
  })
})
