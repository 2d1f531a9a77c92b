import { Context, Effect, Layer, Option } from "effect"
import { decodeCredentialChanges } from "../../../src/domain/CredentialChanges.ts"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import type { AccountId, CredentialId, IdempotencyKey } from "../../../src/domain/Identifiers.ts"
import { decodeNewCredential } from "../../../src/domain/NewCredential.ts"
import { Credentials } from "../../../src/port/Credentials.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"

interface Tenant {
  readonly account_id: AccountId
}

/** Calls an operation on credentials on behalf of a tenant: in process, unless a principal is provided. */
export const as = <A, E, R>(
  { account_id }: Tenant,
  act: (credentials: Credentials["Service"]) => Effect.Effect<A, E, R | CurrentPrincipal>
) =>
  Effect.gen(function* () {
    const given = yield* Effect.serviceOption(CurrentPrincipal)
    const principal = Option.getOrElse(given, () => ({ kind: "in_process", account_id }) as const)
    return yield* Effect.provideService(act(yield* Credentials), CurrentPrincipal, principal)
  })

const decoded = (body: object) =>
  Effect.orDie(decodeNewCredential({ provider: "azure", key: "sk-fake-0123456789-0123456789-AbCd", ...body }))

export const create = (tenant: Tenant, body: object = {}) =>
  Effect.map(
    Effect.flatMap(decoded(body), (input) => as(tenant, ({ create }) => create(input))),
    ({ credential }) => credential
  )

export const createOnce = (tenant: Tenant, body: object, key: IdempotencyKey) =>
  Effect.flatMap(decoded(body), (input) => as(tenant, ({ create }) => create(input, key)))

export const get = (tenant: Tenant, id: CredentialId) => as(tenant, ({ get }) => get(id))

export const update = (tenant: Tenant, id: CredentialId, body: object) =>
  Effect.flatMap(Effect.orDie(decodeCredentialChanges(body)), (changes) =>
    as(tenant, ({ update }) => update(id, changes))
  )

export const remove = (tenant: Tenant, id: CredentialId) => as(tenant, (credentials) => credentials.delete(id))

type Parts = Effect.Services<typeof CredentialsLive.make>

/** The operations on credentials with one port replaced. */
export const instead = <I extends Parts, S>(port: Context.Key<I, S>, change: (given: S) => S) =>
  Effect.flatMap(Effect.context<Parts>(), (parts) =>
    Effect.provideContext(CredentialsLive.make, Context.add(parts, port, change(Context.getUnsafe(parts, port))))
  )

/** A port with some members replaced. */
export const changing = <I, S>(port: Context.Key<I, S>, change: (given: S) => S) =>
  Layer.effect(port, Effect.map(port, change))
