import { Effect } from "effect"
import { decodeCredentialChanges } from "../../../src/domain/CredentialChanges.ts"
import { CurrentCaller } from "../../../src/domain/CurrentCaller.ts"
import type { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import { decodeNewCredential } from "../../../src/domain/NewCredential.ts"
import { Credentials } from "../../../src/port/Credentials.ts"

interface Tenant {
  readonly account_id: AccountId
}

/** Calls an operation on credentials on behalf of a tenant. */
const as = <A, E, R>(
  { account_id }: Tenant,
  act: (credentials: Credentials["Service"]) => Effect.Effect<A, E, R | CurrentCaller>
) =>
  Effect.flatMap(Credentials, (credentials) => Effect.provideService(act(credentials), CurrentCaller, { account_id }))

export const create = (tenant: Tenant, body: object = {}) =>
  Effect.flatMap(
    Effect.orDie(decodeNewCredential({ provider: "azure", key: "sk-fake-0123456789-0123456789-AbCd", ...body })),
    (input) => as(tenant, ({ create }) => create(input))
  )

export const update = (tenant: Tenant, id: CredentialId, body: object) =>
  Effect.flatMap(Effect.orDie(decodeCredentialChanges(body)), (changes) =>
    as(tenant, ({ update }) => update(id, changes))
  )

export const remove = (tenant: Tenant, id: CredentialId) => as(tenant, (credentials) => credentials.delete(id))
