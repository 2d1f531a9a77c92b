import { assert } from "@effect/vitest"
import { Context, Effect, Redacted } from "effect"
import type { AccountId, CredentialId } from "../../src/domain/Identifiers.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { Accounts } from "../../src/service/Accounts.ts"
import * as CredentialsLive from "../../src/service/Credentials.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { list, remove, update } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { layerLive } from "../support/process/layerLive.ts"

const unknown = "019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11"

/** All of an answer except what differs between any two. */
const withoutIdAndDate = ({ body, headers, status }: Answer) => {
  const { "x-request-id": _, date: __, ...rest } = headers
  return JSON.stringify({ status, body, headers: Object.entries(rest).sort() })
}

/** Bodies of an update: one that is fine, one that is refused for what is stored, one that names a foreign hash. */
const bodies = [{}, { name: "x" }, { is_fallback: true }, { key: "k" }, { allowed_api_key_hashes: ["0".repeat(64)] }]

/** What a tenant is answered about a credential and a workspace of another account, and about ones that do not exist. */
const answers = Effect.gen(function* () {
  const [owner, stranger] = [yield* TestService.newTenant, yield* TestService.newTenant]
  const id = createdId(yield* owner.create({ ...minimal, is_required: true }))
  const gone = createdId(yield* stranger.create(minimal))
  yield* stranger.delete(gone)
  const about = (target: string, workspace_id: string) =>
    Effect.all([
      ...bodies.map((body) => stranger.update(target, body)),
      stranger.delete(target),
      stranger.get(target),
      stranger.list(`?workspace_id=${workspace_id}`)
    ])
  const foreign = yield* about(id, owner.workspace_id)
  const others = [yield* about(unknown, unknown), yield* about(gone, unknown)]
  return { foreign, others, owner, id, listed: yield* stranger.list() }
})

const isIndistinguishable = Effect.map(answers, ({ foreign, others }) =>
  others.every((other) => other.map(withoutIdAndDate).join() === foreign.map(withoutIdAndDate).join())
)

layerLive(TestService.layer)("another account's credential", (it) => {
  it.effect("is answered byte for byte like an unknown and a deleted one: update, delete, list (D5, T6)", () =>
    Effect.gen(function* () {
      const { foreign, id, listed, owner } = yield* answers
      assert.isTrue(yield* isIndistinguishable)
      for (const answer of foreign.slice(0, -1)) assertRefused(answer, "NotFound")
      assert.strictEqual(foreign.at(-1)?.status, 400)
      assert.strictEqual(listed.body, '{"data":[],"total_count":0}')
      assert.strictEqual((yield* owner.get(id)).status, 200)
    })
  )

  it.effect("no id but a UUID has another answer either (D5)", () =>
    Effect.gen(function* () {
      const tenant = yield* TestService.tenant
      for (const id of ["nonsense", "a%2Fb", "%zz", "00000000-0000-0000-0000-000000000000"]) {
        assertRefused(yield* tenant.update(id, { name: "x" }), "NotFound")
        assertRefused(yield* tenant.delete(id), "NotFound")
      }
    })
  )

  it.effect("nor does a key that is not a management key change, delete or list its own account's (T7)", () =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      const { account_id, create, get } = yield* TestService.newTenant
      const id = createdId(yield* create(minimal))
      const issued = yield* (yield* Accounts).issueApiKey(account_id, { name: "ordinary", management: false })
      const ordinary = Redacted.value(issued.key)
      const refused = [update(url, ordinary, id, { name: "x" }), remove(url, ordinary, id), list(url, ordinary)]
      for (const request of refused) assertRefused(yield* request, "Forbidden")
      assert.strictEqual((yield* get(id)).status, 200)
    })
  )
})

/** A service whose repository finds, changes or deletes a credential for whoever asks. */
const forgetting = (forgotten: "findSealed" | "delete" | "findById") =>
  TestService.layerWith({
    parts: Effect.gen(function* () {
      const parts = yield* Effect.context<Parts>()
      const repository = Context.get(parts, CredentialRepository)
      const owners = new Map<CredentialId, AccountId>()
      const ownerOf = (account_id: AccountId, id: CredentialId) => owners.get(id) ?? account_id
      const broken: typeof repository = {
        ...repository,
        insert: (account_id, credential, sealed) => {
          owners.set(credential.id, account_id)
          return repository.insert(account_id, credential, sealed)
        },
        [forgotten]: (account_id: AccountId, id: CredentialId) => repository[forgotten](ownerOf(account_id, id), id)
      }
      const replaced = Context.add(parts, CredentialRepository, broken)
      return Context.add(replaced, Credentials, yield* Effect.provideContext(CredentialsLive.make, replaced))
    })
  })

for (const forgotten of ["findSealed", "delete", "findById"] as const) {
  layerLive(forgetting(forgotten))(`a service whose ${forgotten} forgets the account`, (it) => {
    it.effect("would be caught (T6, control)", () =>
      Effect.gen(function* () {
        assert.isFalse(yield* isIndistinguishable)
      })
    )
  })
}
