import { NodeCrypto } from "@effect/platform-node"
import { Effect, Layer, Option } from "effect"
import { IdempotencyKey } from "../../../src/domain/Identifiers.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { databaseContent } from "../../support/keys/leakSearch.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { Store } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { cipherOn } from "../../support/memory/inMemory.ts"
import { createOnce, remove } from "../../support/service/asTenant.ts"
import { assert, describe, it } from "../../support/it.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

const service = CredentialsLive.layer.pipe(
  Layer.provide([cipherOn(ringOf("kek")), NodeCrypto.layerSecureRandom, defaultSettings]),
  Layer.provideMerge(Store.layer)
)

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex")

describe("a deleted credential", () => {
  it.live("leaves only ids and label in the audit log and its id in its idempotency record (L11)", () =>
    Effect.gen(function* () {
      const { sql } = yield* Store
      const tenant = yield* newTenant
      const body = { name: "canary-name", allowed_models: ["canary-model"], allowed_user_ids: ["canary-user"] }
      const { credential } = yield* createOnce(tenant, body, IdempotencyKey.make("k"))
      const { id, label } = credential
      const { findSealed } = yield* CredentialRepository
      const { sealed } = Option.getOrThrow(yield* findSealed(tenant.account_id, id))
      const traces = [
        ...["canary-name", "canary-model", "canary-user"],
        ...[hex(sealed.sealed), hex(sealed.wrapped_dek)]
      ]
      const before = yield* databaseContent(sql)
      for (const trace of traces) assert.include(before, trace, "control")
      yield* remove(tenant, id)
      const after = yield* databaseContent(sql)
      for (const trace of traces) assert.notInclude(after, trace)
      const lines = after.split("\n").filter((line) => line.includes(id))
      assert.lengthOf(lines, 3)
      assert.lengthOf(
        lines.filter((line) => line.includes(label) && /"action": ?"credential\.(create|delete)"/.test(line)),
        2
      )
    }).pipe(Effect.provide(service))
  )
})
