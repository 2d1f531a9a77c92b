import { NodeCrypto } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Option } from "effect"
import { CurrentCaller } from "../../src/domain/CurrentCaller.ts"
import { IdempotencyKey } from "../../src/domain/IdempotencyKey.ts"
import type { CredentialId } from "../../src/domain/Identifiers.ts"
import { decodeNewCredential } from "../../src/domain/NewCredential.ts"
import { Cipher } from "../../src/port/Cipher.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import * as CredentialsLive from "../../src/service/Credentials.ts"
import { databaseContent } from "../support/keys/leakSearch.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { openStore } from "../support/database/stores.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { cipherWith } from "../support/keys/rotating.ts"

const key = "sk-0123456789-0123456789-AbCd"

/** The service on a database of its own, under a keyring. */
const open = Effect.fnUntraced(function* (ring: string) {
  const { ports, sql } = yield* openStore()
  const tenant = yield* Effect.provideContext(newTenant, ports)
  const credentials = yield* CredentialsLive.make.pipe(
    Effect.provide(NodeCrypto.layerSecureRandom),
    Effect.provideContext(Context.add(ports, Cipher, yield* cipherWith(ring)))
  )
  const as = <A, E, R>(act: Effect.Effect<A, E, R>) => Effect.provideService(act, CurrentCaller, tenant)
  const create = Effect.fnUntraced(function* (body: object) {
    const input = yield* decodeNewCredential({ provider: "cohere", key, ...body })
    const { credential } = yield* as(credentials.createOnce(input, IdempotencyKey.make(`k-${JSON.stringify(body)}`)))
    return credential
  })
  const { findSealed } = Context.get(ports, CredentialRepository)
  return {
    sql,
    create,
    remove: (id: CredentialId) => as(credentials.delete(id)),
    stored: (id: CredentialId) => Effect.map(findSealed(tenant.account_id, id), Option.getOrThrow)
  }
})

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex")

describe("a deleted credential", () => {
  it.live("leaves nothing in a dump but its ids in the audit log and in its idempotency record (L11)", () =>
    Effect.gen(function* () {
      const { create, remove, sql, stored } = yield* open(ringOf("kek"))
      const body = { name: "canary-name", allowed_models: ["canary-model"], allowed_user_ids: ["canary-user"] }
      const { id, label } = yield* create(body)
      const { sealed } = yield* stored(id)
      const traces = [
        ...["canary-name", "canary-model", "canary-user", label],
        ...[hex(sealed.sealed), hex(sealed.wrapped_dek)]
      ]
      const before = yield* databaseContent(sql)
      for (const trace of traces) assert.include(before, trace, "control")
      yield* remove(id)
      const after = yield* databaseContent(sql)
      for (const trace of traces) assert.notInclude(after, trace)
      const lines = after.split("\n").filter((line) => line.includes(id))
      assert.lengthOf(lines, 3)
      assert.lengthOf(
        lines.filter((line) => /"action": ?"credential\.(create|delete)"/.test(line)),
        2
      )
    })
  )
})
