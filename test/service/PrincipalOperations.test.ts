import { DateTime, Effect, Exit, Layer, Schema } from "effect"
import type { Credential } from "../../src/domain/Credential.ts"
import { CredentialId, LinkId } from "../../src/domain/Identifiers.ts"
import { decodeNewCredential } from "../../src/domain/NewCredential.ts"
import { CurrentPrincipal, type Operation, type Principal, type Role, roleAllows } from "../../src/domain/Principal.ts"
import { PlanRequest } from "../../src/domain/routing/RoutingRequest.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { AuditLog } from "../../src/port/AuditLog.ts"
import { Events } from "../../src/port/Events.ts"
import { Explanations } from "../../src/port/Explanations.ts"
import * as EventsLive from "../../src/service/audit/Events.ts"
import * as ExplanationsLive from "../../src/service/routing/Explanations.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { inMemory } from "../support/memory/inMemory.ts"
import { create } from "../support/service/asTenant.ts"
import { assert, describe, itWith } from "../support/it.ts"

/** An audit log without entries. */
const emptyLog = Layer.mock(AuditLog, { read: () => Effect.succeed([]) })

const inServices = itWith(
  Layer.merge(ExplanationsLive.layer, Layer.provide(EventsLive.layer, emptyLog)).pipe(Layer.provideMerge(inMemory()))
)

/** Every operation that acts for the current principal, and the name under which the table of roles has it. */
const operations = Effect.gen(function* () {
  const [credentials, explanations, events] = [yield* Credentials, yield* Explanations, yield* Events]
  const input = yield* decodeNewCredential({ provider: "azure", key: "sk-fake-0123456789-0123456789-AbCd" })
  const request = Schema.decodeUnknownSync(PlanRequest)({ model: "a/model", targets: [{ provider: "azure" }] })
  const memory = { taken: 0, take: () => Effect.void }
  const unknown = CredentialId.make("0199a5a0-0000-7000-8000-000000000001")
  type Run = (stored: Credential) => Effect.Effect<unknown, unknown, CurrentPrincipal>
  const of = <Service extends object>(
    service: Service,
    runs: {
      readonly [Name in keyof Service as Service[Name] extends boolean ? never : Name]:
        readonly [Operation, Run] | undefined
    }
  ) =>
    Object.entries<readonly [Operation, Run] | undefined>(runs).flatMap(([name, run]) => {
      assert.property(service, name)
      return run === undefined ? [] : [{ name, operation: run[0], run: run[1] }]
    })
  return [
    ...of(credentials, {
      create: ["create", () => credentials.create(input)],
      get: ["get", (stored) => credentials.get(stored.id)],
      list: ["list", () => credentials.list({ limit: 1, offset: 0, memory })],
      update: ["update", (stored) => credentials.update(stored.id, { name: "renamed" })],
      order: ["order", () => credentials.order({ provider: "azure", ids: [unknown] })],
      delete: ["delete", () => credentials.delete(unknown)]
    }),
    ...of(explanations, {
      explain: ["plan", () => explanations.explain(request)],
      status: ["status", (stored) => explanations.status(stored.id)],
      statuses: ["status", (stored) => explanations.statuses([stored])]
    }),
    ...of(events, {
      list: ["events", () => events.list({ limit: 1 })],
      // Reads the events of all accounts for the subscriber, which no principal stands for.
      next: undefined
    })
  ]
})

/** A principal of every role in the table, by the name of its role. */
const principalsOf = ({
  account_id,
  hash,
  workspace_id
}: Effect.Success<typeof newTenant>): Readonly<Record<Role, Principal>> => {
  const link = {
    kind: "link",
    ...{ link_id: LinkId.make("0199a5a0-0000-7000-8000-000000000002"), account_id, workspace_id, hash },
    ...{ keys: null, provider: null, credential_id: null, return_url: null },
    ...{ created_at: DateTime.makeUnsafe(0), expires_at: DateTime.makeUnsafe(0) }
  } as const
  const apiKey = { kind: "api_key", account_id, api_key_hash: hash } as const
  return {
    management: { ...apiKey, role: "management" },
    viewer: { ...apiKey, role: "viewer" },
    ordinary: { ...apiKey, role: "ordinary" },
    connect: { ...link, purpose: "connect" },
    replace: { ...link, purpose: "replace" },
    manage: { ...link, purpose: "manage" },
    view: { ...link, purpose: "view" },
    in_process: { kind: "in_process", account_id },
    gateway: { kind: "gateway", account_id },
    cli: { kind: "cli", account_id },
    service: { kind: "service", account_id }
  }
}

describe("an operation in process that acts for a principal (D51, D53)", () => {
  inServices("is refused as a defect exactly to the roles that the table does not permit it", function* () {
    const tenant = yield* newTenant
    const stored = yield* create(tenant)
    const wrong: Array<string> = []
    for (const [role, principal] of Object.entries(principalsOf(tenant))) {
      for (const { name, operation, run } of yield* operations) {
        const exit = yield* Effect.exit(Effect.provideService(run(stored), CurrentPrincipal, principal))
        const isRefused = Exit.isFailure(exit) && String(exit.cause).includes(`may not call ${operation}`)
        if (isRefused === roleAllows(role as Role, operation)) wrong.push(`${role} ${name}: ${String(exit)}`)
      }
    }
    assert.deepStrictEqual(wrong, [])
  })
})
