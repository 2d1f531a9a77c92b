import { assert } from "@effect/vitest"
import { Context, Effect } from "effect"
import type { AccountId } from "../../src/domain/Identifiers.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import * as CredentialsLive from "../../src/service/Credentials.ts"
import { WorkspaceResolver } from "../../src/port/WorkspaceResolver.ts"
import { Database } from "../../src/sql/connection/Database.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { create, get } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Parts, type Tenant, TestService } from "../support/http/TestService.ts"

const unknownId = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"
const unknownHash = "0123456789abcdef".repeat(4)

/** Everything a client sees of an answer, except its request id and time. */
const seen = ({ body, headers: { date: _date, "x-request-id": _id, ...headers }, status }: Answer) =>
  JSON.stringify({ status, headers, body })

/** What one tenant may try on another: each attempt, paired with one on what does not exist. */
const attempts = (token: string, { management_key_hash, workspace_id }: Tenant, foreignId: string) =>
  Effect.gen(function* () {
    const { url } = yield* TestService
    const tryHash = (hash: string) => create(url, token, { ...minimal, allowed_api_key_hashes: [hash] })
    const tryWorkspace = (workspace: string) => create(url, token, { ...minimal, workspace_id: workspace })
    return {
      get: [yield* get(url, token, foreignId), yield* get(url, token, unknownId)],
      hash: [yield* tryHash(management_key_hash), yield* tryHash(unknownHash)],
      workspace: [yield* tryWorkspace(workspace_id), yield* tryWorkspace(unknownId)]
    } as const
  })

/** The attempts that reveal something about another tenant. */
const revealing = Effect.gen(function* () {
  const { newTenant, url } = yield* TestService
  const victim = yield* newTenant
  const { management_key } = yield* newTenant
  const foreignId = createdId(yield* create(url, victim.management_key, minimal))
  const answers = yield* attempts(management_key, victim, foreignId)
  return Object.entries(answers).flatMap(([attempt, [foreign, unknown]]) =>
    foreign.status < 300 || seen(foreign) !== seen(unknown) ? [attempt] : []
  )
})

layerLive(TestService.layer)("what belongs to another account", (it) => {
  it.effect(
    "is answered like what does not exist, except the request id: credential, hash, workspace (D5, D6, D24, T6)",
    () =>
      Effect.gen(function* () {
        const { rowCount } = yield* TestService
        const before = yield* rowCount
        assert.deepStrictEqual(yield* revealing, [])
        assert.strictEqual(yield* rowCount, before + 1)
      })
  )

  it.effect("cannot be reached with a revoked key either, nor after the owner's key is revoked (D3, D5)", () =>
    Effect.gen(function* () {
      const { newTenant, sql, url } = yield* TestService
      const [victim, stranger, revoked] = [yield* newTenant, yield* newTenant, yield* newTenant]
      const id = createdId(yield* create(url, victim.management_key, minimal))
      for (const { account_id } of [victim, revoked]) {
        yield* sql`UPDATE api_keys SET revoked_at = now() WHERE account_id = ${account_id}`
      }
      for (const [{ management_key }, refusal] of [
        [stranger, "NotFound"],
        [revoked, "InvalidKey"]
      ] as const) {
        const [foreign, unknown] = [yield* get(url, management_key, id), yield* get(url, management_key, unknownId)]
        assertRefused(foreign, refusal)
        assert.strictEqual(seen(foreign), seen(unknown))
      }
    })
  )

  it.effect("does not count in sort_order (D32)", () =>
    Effect.gen(function* () {
      const { newTenant, url } = yield* TestService
      const [one, other] = [yield* newTenant, yield* newTenant]
      for (const expected of [0, 1]) {
        for (const { management_key } of [one, other]) {
          assert.strictEqual(created(yield* create(url, management_key, minimal))["sort_order"], expected)
        }
      }
    })
  )
})

/** The service's logic over parts of which one ignores the account. */
const careless = (breakPart: (parts: Context.Context<Parts>) => Context.Context<Parts>) =>
  Effect.gen(function* () {
    const parts = breakPart(yield* Effect.context<Parts>())
    return Context.add(parts, Credentials, yield* Effect.provideContext(CredentialsLive.make, parts))
  })

const findsAnyones = (parts: Context.Context<Parts>) => {
  const repository = Context.get(parts, CredentialRepository)
  const { reads } = Context.get(parts, Database)
  return Context.add(parts, CredentialRepository, {
    ...repository,
    findById: (account_id, id) =>
      Effect.flatMap(
        reads.ask(
          reads.sql<{ account_id: AccountId }>`SELECT account_id FROM credentials WHERE id = ${id}`,
          "tests.ask"
        ),
        (rows) => repository.findById(rows[0]?.account_id ?? account_id, id)
      )
  })
}

const ownsEveryHash = (parts: Context.Context<Parts>) =>
  Context.add(parts, ApiKeys, {
    ...Context.get(parts, ApiKeys),
    ownedBy: (_account_id, hashes) => Effect.succeed(new Set(hashes.filter((hash) => hash !== unknownHash)))
  })

/** The insert checks the account of a workspace too, so a resolver can no longer attach to it, only give it away. */
const tellsWorkspacesApart = (parts: Context.Context<Parts>) =>
  Context.add(parts, WorkspaceResolver, {
    resolve: (account_id, requested) =>
      requested === undefined || requested === unknownId
        ? Context.get(parts, WorkspaceResolver).resolve(account_id, requested)
        : Effect.die("a workspace of somebody else")
  })

const builds = [
  { attempt: "get", build: "finds a credential without its account", broken: findsAnyones },
  { attempt: "hash", build: "takes any hash that exists", broken: ownsEveryHash },
  { attempt: "workspace", build: "tells workspaces that exist from unknown ones", broken: tellsWorkspacesApart }
]

for (const { attempt, broken, build } of builds) {
  layerLive(TestService.layerWith({ parts: careless(broken) }))(
    `positive control: a build that ${build} (T6)`,
    (it) => {
      it.effect(`is found by the attempt ${attempt}`, () =>
        Effect.map(revealing, (found) => {
          assert.deepStrictEqual(found, [attempt])
        })
      )
    }
  )
}
