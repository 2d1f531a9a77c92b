import { Effect } from "effect"
import { decodeCredentialChanges } from "../../src/domain/CredentialChanges.ts"
import { AccountId, ApiKeyHash, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { decodeNewCredential } from "../../src/domain/NewCredential.ts"
import { requestOf } from "../support/service/planning.ts"

/** The second one takes keys that sign tokens. */
export const providers = ["azure", "amazon-bedrock"] as const
const models = ["a/one", "a/two"] as const

export const idOf = (n: number) => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`

const tenantNumbered = (n: number) => ({
  account_id: AccountId.make(idOf(10 + n)),
  workspace_id: WorkspaceId.make(idOf(20 + n)),
  hash: ApiKeyHash.make(String(n).repeat(64)),
  /** Of ordinary API keys, which get attempts. */
  apiKeys: ["a", "b"].map((letter) => ApiKeyHash.make(`${n}${letter}`.repeat(32)))
})
export type Tenant = ReturnType<typeof tenantNumbered>
export const tenants: readonly [Tenant, Tenant] = [tenantNumbered(0), tenantNumbered(1)]
export const tenantAt = (n: number): Tenant => tenants[n === 0 ? 0 : 1]
export const tenantOf = (account_id: AccountId): Tenant | undefined =>
  tenants.find((tenant) => tenant.account_id === account_id)

const keyNumbered = (n: number) => `sk-fake-0123456789-0123456789-${n}`
/** The id of an access key, whose digits are letters because such ids have no 0 and no 1. */
const accessKeyNumbered = (n: number) =>
  `AKIAFAKEFAKE${String(10_000_000 + n).replace(/\d/g, (digit) => "ABCDEFGHIJ".charAt(Number(digit)))}`
const signingKey = (n: number) =>
  JSON.stringify({ accessKeyId: accessKeyNumbered(n), secretAccessKey: keyNumbered(n), region: "us-east-1" })

const bodies = [
  {},
  {},
  { is_fallback: true },
  { is_required: true },
  { allowed_models: [models[0]] },
  { disabled: true },
  { is_byok_only: true, allowed_models: [models[1]] },
  { key: keyNumbered(7) }
]
/** What may be created at each provider. */
export const inputs = providers.map((provider, p) =>
  bodies.map((body, n) => {
    const key = p === 1 && n % 2 === 0 ? signingKey(n) : keyNumbered(10 * p + n)
    return Effect.runSync(decodeNewCredential({ provider, key, name: "-", ...body }))
  })
)

/** Members of an update, and the changes that they are. */
export const changes = [
  { name: "one" },
  { name: "two" },
  { disabled: true },
  { disabled: false },
  { disabled: false },
  { allowed_models: [models[0]] },
  { allowed_models: null },
  { key: keyNumbered(31) },
  { key: keyNumbered(32) },
  { key: signingKey(33) },
  { key: signingKey(34) },
  { is_required: true },
  { declared_zdr: true },
  { allowed_user_ids: ["someone"] }
].map((body) => ({ names: Object.keys(body), decoded: Effect.runSync(decodeCredentialChanges(body)) }))

const requests = tenants.map((tenant) =>
  [0, 1].map((first) =>
    models.map((model, m) => {
      const targets = [providers[first], providers[1 - first]].map((provider) => ({ provider }))
      return requestOf(tenant, { model, targets, keys: m === 0 ? "tokens" : "as_stored" })
    })
  )
)
/** A request of a tenant: for the first model tokens are asked for. */
export const requestAt = (tenant: number, model: number, first = 0): ReturnType<typeof requestOf> =>
  requests[tenant]?.[first]?.[model] as ReturnType<typeof requestOf>
