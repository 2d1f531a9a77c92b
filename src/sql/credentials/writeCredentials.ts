import { randomUUID } from "node:crypto"
import { Effect, Option } from "effect"
import type { Statement } from "effect/sql"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import type { Credential } from "../../domain/Credential.ts"
import { ChangeableField } from "../../domain/CredentialChanges.ts"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { actingPrincipal, actorOf } from "../../domain/Principal.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import {
  type CredentialOrder,
  type CredentialUpdate,
  type OrderMismatch,
  PoolFull,
  type PoolLimits,
  type UnstoredCredential,
  WorkspaceGone
} from "../../port/CredentialRepository.ts"
import { type Answer, DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { IdempotencyRecord } from "../../port/IdempotencyRecords.ts"
import { LinkClosed } from "../../port/Links.ts"
import { entryOf } from "../audit/auditing.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import type { Operation } from "../connection/Query.ts"
import { askFirst } from "../connection/statements.ts"
import {
  credentialOf,
  newColumns,
  type NewRow,
  type Recorded,
  recordedColumns,
  recordedOf
} from "../rows/credentialRows.ts"

/** The columns that an update may change, except the sealed key and the versions. */
const changeableColumns = ["label", ...ChangeableField.literals.filter((field) => field !== "key")] as const

/** The members of a row as JSON for `json_populate_record`. */
const jsonOf = (row: Readonly<Record<string, unknown>>, names: ReadonlyArray<string>) =>
  JSON.stringify(
    Object.fromEntries(
      names.map((name) => {
        const value = row[name]
        return [name, value instanceof Uint8Array ? `\\x${Buffer.from(value).toString("hex")}` : value]
      })
    )
  )

/** The failure of a new credential whose id another credential has. */
const idTaken = new DatabaseFailure({ kind: "IdTaken", sqlstate: undefined, constraint: "credentials_pkey" })

interface Created {
  readonly sort_order: number
  readonly created_at: Date
}

/**
 * The writes of credentials: each calls its function of `src/sql/schema/writes.ts`, which states their invariants, and
 * names itself by `operation`, so that a repeat after a lost answer is recognised.
 */
export const makeWrites = (pool: ConnectionPool, limits: PoolLimits["Service"]) => {
  const { ask, sql } = pool

  /** Calls a function with `call`, whose last arguments are the link, the operation and the audit entry. */
  const write = <Outcome extends string, Row = unknown>(
    account_id: AccountId,
    name: Operation,
    acts: ReadonlyArray<AuditAct>,
    call: (audited: Statement.Fragment) => Statement.Statement<Row & { readonly outcome: Outcome | "link_closed" }>,
    operation: string = randomUUID()
  ): Answer<Row & { readonly outcome: Outcome }> =>
    Effect.flatMap(actingPrincipal, (principal) => {
      const link = principal.kind === "link" ? principal.link_id : null
      const audited = sql`${link}::uuid, ${operation}::uuid, ${entryOf(actorOf(principal), acts)}::json`
      return Effect.flatMap(ask(call(audited), name, account_id), ([row]) =>
        row === undefined || row.outcome === "link_closed"
          ? Effect.die(new LinkClosed())
          : Effect.succeed(row as Row & { readonly outcome: Outcome })
      )
    })

  /** Creates a credential. Returns none if another request has stored an idempotency record with the same `key_hash`. */
  const insert = Effect.fnUntraced(function* (
    account_id: AccountId,
    credential: UnstoredCredential,
    sealed: SealedKey,
    record?: IdempotencyRecord
  ) {
    const row: NewRow = { account_id, ...credential, ...sealed }
    const created = yield* write<"stored" | "workspace_gone" | "too_many" | "too_large" | "taken", Created>(
      account_id,
      "credentials.insert",
      [{ action: "credential.create", ...recordedOf(row) }],
      (audited) => sql`
        SELECT * FROM create_credential(
          ${jsonOf({ ...row }, newColumns)}::json, ${record?.key_hash ?? null}::bytea, ${record?.fingerprint ?? null}::bytea,
          ${limits.credentials}::integer, ${limits.bytes}::bigint, ${audited}
        )`,
      credential.id
    )
    switch (created.outcome) {
      case "stored":
        return Option.some(credentialOf({ ...credential, ...created }))
      case "workspace_gone":
        return yield* new WorkspaceGone()
      case "too_many":
        return yield* new PoolFull({ unit: "credentials", limit: limits.credentials })
      case "too_large":
        return yield* new PoolFull({ unit: "bytes", limit: limits.bytes })
      case "taken":
        return record === undefined ? yield* idTaken : Option.none<Credential>()
    }
  })

  /** Updates a credential if it still has the revision that was read, or returns false. */
  const update = Effect.fnUntraced(function* (
    account_id: AccountId,
    { credential, fields, key_version, revision, sealed }: CredentialUpdate
  ) {
    const row = { account_id, ...credential, ...sealed, key_version }
    const names = ["account_id", "workspace_id", "provider", "id", "key_version", ...changeableColumns]
    const recorded = recordedOf(row)
    const { outcome } = yield* write<"stored" | "changed" | "too_large">(
      account_id,
      "credentials.update",
      [
        { action: "credential.update", ...recorded, revision: revision + 1, fields },
        ...(fields.includes("key") ? [{ action: "credential.rotate", ...recorded, key_version } as const] : [])
      ],
      (audited) => sql`
        SELECT * FROM update_credential(
          ${jsonOf(row, sealed === undefined ? names : [...names, ...Object.keys(sealed)])}::json,
          ${revision}::bigint, ${limits.bytes}::bigint, ${audited}
        )`
    )
    return outcome === "too_large" ? yield* new PoolFull({ unit: "bytes", limit: limits.bytes }) : outcome === "stored"
  })

  /** Deletes a credential. Returns false if there is none. Starts again if it was updated since it was read. */
  const remove = (account_id: AccountId, id: CredentialId): Answer<boolean> =>
    Effect.flatMap(
      askFirst(pool, "credentials.locate", account_id)<Recorded & { readonly revision: number }>`
        SELECT ${sql.csv(recordedColumns)}, revision FROM credentials WHERE account_id = ${account_id} AND id = ${id}`,
      Option.match({
        onNone: () => Effect.succeed(false),
        onSome: (row) =>
          Effect.flatMap(
            write<"stored" | "changed">(
              account_id,
              "credentials.delete",
              [{ action: "credential.delete", ...recordedOf(row) }],
              (audited) => sql`
                SELECT * FROM delete_credential(
                  ${account_id}::uuid, ${row.workspace_id}::uuid, ${row.provider}, ${id}::uuid, ${row.revision}::bigint, ${audited}
                )`
            ),
            ({ outcome }) => (outcome === "stored" ? Effect.succeed(true) : remove(account_id, id))
          )
      })
    )

  /** Stores the order of a pool; none if it has that order now. Stores nothing and returns a mismatch. */
  const reorder = (account_id: AccountId, { ids, provider, workspace_id }: CredentialOrder) => {
    const act: AuditAct = { action: "credential.reorder", account_id, workspace_id, provider, credential_ids: [...ids] }
    const ordered = write<
      "stored" | "unchanged" | "mismatch",
      { missing: OrderMismatch["missing"]; foreign_ids: OrderMismatch["foreign"] }
    >(
      account_id,
      "credentials.reorder",
      [act],
      (audited) => sql`
        SELECT * FROM order_credentials(
          ${account_id}::uuid, ${workspace_id}::uuid, ${provider}, ${ids}::uuid[], ${audited}
        )`
    )
    return Effect.map(ordered, ({ foreign_ids, missing, outcome }) =>
      outcome === "mismatch" ? Option.some({ missing, foreign: foreign_ids }) : Option.none()
    )
  }

  return { insert, update, delete: remove, reorder }
}
