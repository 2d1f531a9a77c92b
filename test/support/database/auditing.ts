import { Effect, Layer, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import type { AccountId } from "../../../src/domain/AccountId.ts"
import { AuditEvent } from "../../../src/domain/AuditEvent.ts"
import type { WorkspaceId } from "../../../src/domain/WorkspaceId.ts"
import * as Persistence from "../../../src/wiring/Persistence.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { Receipts } from "../../../src/port/Receipts.ts"
import { adminClient, freshDatabase, settingsFor } from "./freshDatabase.ts"
import { plainCredential, plainSealedKey } from "../keys/plainCredential.ts"

/** Every port on a database of its own, and a client for what happens behind the service's back. */
export const openStore = Effect.fnUntraced(function* (batching: boolean = true) {
  const url = yield* freshDatabase
  const { database, ...settings } = settingsFor(url)
  const build = Layer.build(Layer.fresh(Persistence.layer({ ...settings, database: { ...database, batching } })))
  return { sql: yield* adminClient(url), ports: yield* build, build }
})

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Array(AuditEvent)), {
  onExcessProperty: "error"
})

/** The events of every entry, an array for each. An event that holds more than it may is a failure. */
export const entriesIn = (sql: SqlClient.SqlClient) =>
  Effect.flatMap(sql<{ events: string }>`SELECT events::text AS events FROM audit_entries ORDER BY seq`, (rows) =>
    Effect.forEach(rows, ({ events }) => decode(events))
  )

export const eventsIn = (sql: SqlClient.SqlClient) => Effect.map(entriesIn(sql), (entries) => entries.flat())

const credentialOf = (workspace_id: WorkspaceId, id?: string) => ({
  ...plainCredential(workspace_id, id),
  name: "canary of a name"
})

/** Stores a credential of no interest. */
export const insertCredential = (account_id: AccountId, workspace_id: WorkspaceId, id?: string) =>
  Effect.flatMap(CredentialRepository, ({ insert }) =>
    insert(account_id, credentialOf(workspace_id, id), plainSealedKey())
  )

/** The same with a receipt, of which the account may have one under each number. */
export const insertWithReceipt = (account_id: AccountId, workspace_id: WorkspaceId, number: number) =>
  Effect.flatMap(Receipts, ({ insert }) =>
    insert(account_id, credentialOf(workspace_id), plainSealedKey(), {
      key_hash: new Uint8Array(32).fill(number),
      fingerprint: new Uint8Array(32)
    })
  )
