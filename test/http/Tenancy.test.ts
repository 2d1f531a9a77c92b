import { Context, Effect } from "effect"
import type { AccountId, CredentialId } from "../../src/domain/Identifiers.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { WorkspaceResolver } from "../../src/port/AccountRepository.ts"
import * as CredentialsLive from "../../src/service/credentials/Credentials.ts"
import { createdId, minimal, unknownId } from "../support/http/Bodies.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Parts, type Tenant, TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const unknownHash = "0123456789abcdef".repeat(4)

/** Everything a client sees of an answer, except its request id and time. */
const seen = ({ body, headers: { date: _date, "x-request-id": _id, ...headers }, status }: Answer) =>
  JSON.stringify({ status, headers, body })

/** Bodies of an update: valid ones, one that conflicts with the stored credential, one with an unknown hash. */
const updates = [{}, { name: "x" }, { is_fallback: true }, { key: "k" }, { allowed_api_key_hashes: [unknownHash] }]

/** Everything that a tenant may try with the ids and the hash of somebody else. */
const attempts = (
  { create, delete: remove, get, list, update }: Tenant,
  { hash, id, workspace_id }: { readonly hash: string; readonly id: string; readonly workspace_id: string }
) =>
  Effect.all({
    get: Effect.all([get(id)]),
    update: Effect.forEach(updates, (body) => update(id, body)),
    delete: Effect.all([remove(id)]),
    hash: Effect.all([create({ ...minimal, allowed_api_key_hashes: [hash] })]),
    workspace: Effect.all([create({ ...minimal, workspace_id }), list(`?workspace_id=${workspace_id}`)])
  })

/** The attempts whose answers differ from those for unknown or deleted ids, and so reveal another tenant's data. */
const revealing = Effect.gen(function* () {
  const [owner, stranger] = [yield* TestService.newTenant, yield* TestService.newTenant]
  const id = createdId(yield* owner.create({ ...minimal, is_required: true }))
  const gone = createdId(yield* stranger.create(minimal))
  yield* stranger.delete(gone)
  const { management_key_hash: hash, workspace_id } = owner
  const foreign = yield* attempts(stranger, { id, workspace_id, hash })
  const nothing = { id: unknownId, workspace_id: unknownId, hash: unknownHash }
  const others = [yield* attempts(stranger, nothing), yield* attempts(stranger, { ...nothing, id: gone })]
  const names = (Object.keys(foreign) as Array<keyof typeof foreign>).filter((name) =>
    others.some(
      (other) =>
        foreign[name].some(({ status }) => status < 300) ||
        foreign[name].map(seen).join() !== other[name].map(seen).join()
    )
  )
  return { names, foreign, found: yield* owner.get(id), listed: yield* stranger.list() }
})

layerLive(TestService.layer)("the isolation of accounts", (it) => {
  it.effect("answers the same for another account's resource as for a missing one (D5, D6, D24, T6)", function* () {
    const { foreign, found, listed, names } = yield* TestService.storing(1, revealing)
    assert.deepStrictEqual(names, [])
    for (const answer of [...foreign.get, ...foreign.update, ...foreign.delete]) assertRefused(answer, "NotFound")
    for (const { status } of [...foreign.hash, ...foreign.workspace]) assert.strictEqual(status, 400)
    assert.strictEqual(listed.body, '{"data":[],"total_count":0}')
    assert.strictEqual(found.status, 200)
  })
})

/** The attempt in which the build below ignores the account. */
let planted: string | undefined

/** A build that forgets the account, but only where a fault is planted while it runs. */
const forgetful = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const repository = Context.get(parts, CredentialRepository)
  const apiKeys = Context.get(parts, ApiKeys)
  const workspaces = Context.get(parts, WorkspaceResolver)
  const owners = new Map<CredentialId, AccountId>()
  const ownerIn = (attempt: string, account_id: AccountId, id: CredentialId) =>
    planted === attempt ? (owners.get(id) ?? account_id) : account_id
  const forgetting = parts.pipe(
    Context.add(CredentialRepository, {
      ...repository,
      insert: (account_id, credential, ...rest) => {
        owners.set(credential.id, account_id)
        return repository.insert(account_id, credential, ...rest)
      },
      findById: (account_id, id) => repository.findById(ownerIn("get", account_id, id), id),
      findSealed: (account_id, id) => repository.findSealed(ownerIn("update", account_id, id), id),
      delete: (account_id, id) => repository.delete(ownerIn("delete", account_id, id), id)
    }),
    Context.add(ApiKeys, {
      ...apiKeys,
      ownedBy: (account_id, hashes) =>
        planted === "hash"
          ? Effect.succeed(new Set(hashes.filter((hash) => hash !== unknownHash)))
          : apiKeys.ownedBy(account_id, hashes)
    }),
    // The insert checks the account of a workspace too, so a resolver can no longer attach to it, only give it away.
    Context.add(WorkspaceResolver, {
      resolve: (account_id, requested) =>
        planted === "workspace" && requested !== undefined && requested !== unknownId
          ? Effect.die("a workspace of somebody else")
          : workspaces.resolve(account_id, requested)
    })
  )
  return Context.add(forgetting, Credentials, yield* Effect.provideContext(CredentialsLive.make, forgetting))
})

layerLive(TestService.layerWith({ parts: forgetful }))("control of the isolation of accounts (T6)", (it) => {
  const assertExposed = (attempt: string | undefined) =>
    Effect.suspend(() => {
      planted = attempt
      return Effect.map(revealing, ({ names }) =>
        assert.deepStrictEqual<unknown>(names, attempt === undefined ? [] : [attempt])
      )
    })

  it.effect.each([
    ["in get", "get"],
    ["in update", "update"],
    ["in delete", "delete"],
    ["of the hash of an API key", "hash"],
    ["of a workspace", "workspace"]
  ])("a build that ignores the account %s is found out, by that attempt only (control)", ([, attempt]) =>
    assertExposed(attempt)
  )

  it.effect("a build that ignores the account nowhere is not found out (control)", () => assertExposed(undefined))
})
