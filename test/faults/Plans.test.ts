import { assert } from "@effect/vitest"
import { Duration, Effect, Layer, Option, Result } from "effect"
import { randomUUID } from "node:crypto"
import { CredentialId } from "../../src/domain/CredentialId.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Receipts } from "../../src/port/Receipts.ts"
import { WrappedKeys } from "../../src/port/WrappedKeys.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { databaseSettings } from "../support/database/freshDatabase.ts"
import { Statements } from "../support/database/Statements.ts"
import { TestService } from "../support/http/TestService.ts"

const seed = `
  INSERT INTO accounts SELECT gen_random_uuid(), 'n', now() FROM generate_series(1, 1000);
  INSERT INTO workspaces SELECT gen_random_uuid(), id, 'n', true, now() FROM accounts
    WHERE id NOT IN (SELECT account_id FROM workspaces);
  INSERT INTO api_keys SELECT sha256(convert_to(account_id::text || n, 'UTF8')), account_id, 'n', true, now()
    FROM workspaces, generate_series(1, 100) AS n;
  INSERT INTO credentials SELECT gen_random_uuid(), account_id, id, 'openai', NULL, '***...***', now(),
    false, false, false, false, NULL, NULL, NULL, NULL, NULL, n, (SELECT min(id) FROM keks),
    decode(repeat('00', 60), 'hex'), decode(repeat('00', 90), 'hex') FROM workspaces, generate_series(1, 100) AS n;
  INSERT INTO receipts SELECT account_id, sha256(uuid_send(id)), id, sha256(''), now() FROM credentials;
  ANALYZE`

layerLive(Layer.provideMerge(TestService.layer, Statements.layer))(
  "among 100,000 credentials and as many API keys",
  (it) => {
    it.effect(
      "every operation, receipts, look-ups and rewraps, alone and batched, never scan a whole table (R13)",
      () =>
        Effect.gen(function* () {
          const { sql } = yield* TestService
          const statements = yield* Statements
          const { account_id, create, get, management_key_hash } = yield* TestService.newTenant
          for (const statement of seed.split(";")) yield* sql.unsafe(statement)
          statements.clear()
          const one = yield* create(minimal)
          yield* get(createdId(one))
          const repository = yield* CredentialRepository
          const apiKeys = yield* ApiKeys
          const id = CredentialId.make(createdId(one))
          const { credential, sealed } = Option.getOrThrow(yield* repository.findSealed(account_id, id))
          const many = Array.from({ length: 5 }, () => CredentialId.make(randomUUID()))
          const together = { concurrency: "unbounded" } as const
          yield* Effect.forEach(many, (id) => repository.insert(account_id, { ...credential, id }, sealed), together)
          yield* Effect.forEach(many, (id) => repository.findById(account_id, id), together)
          yield* Effect.forEach(many, () => apiKeys.find(management_key_hash), together)
          yield* apiKeys.ownedBy(account_id, [management_key_hash])
          for (const _ of ["first", "again"]) {
            created(yield* create(minimal, [["Idempotency-Key", "k"]]))
          }
          yield* (yield* Receipts).forget(Duration.days(1), 500)
          yield* (yield* WrappedKeys).replace({ primary: "new", after: undefined, size: 10 }, ({ wrapped_dek }) =>
            Effect.succeed(Result.succeed({ kek_id: "new", wrapped_dek }))
          )
          const page = { workspace_id: credential.workspace_id, offset: 10, limit: 10 }
          for (const provider of [undefined, credential.provider]) {
            yield* repository.list(account_id, { ...page, provider })
          }
          const changes = { credential, sealed: undefined, key_version: 1, fields: ["name"] } as const
          for (const revision of [1, 1]) yield* repository.update(account_id, { ...changes, revision })
          yield* repository.update(account_id, { ...changes, sealed, revision: 2 })
          yield* repository.delete(account_id, id)

          const texts = Array.from(statements).filter((text) => /\b(credentials|api_keys|receipts)\b/.test(text))
          const shared = databaseSettings.batching
            ? ["json_populate_recordset", "unnest", "hash = ANY($1::bytea[]) AND revoked"]
            : []
          const alone = [
            "FROM home",
            "SELECT account_id, id",
            "receipt AS (",
            "key_hash = $2",
            "DELETE FROM receipts",
            "(account_id, id) >",
            "UPDATE credentials SET kek_id",
            "hash = $1",
            "AS counted",
            "AND provider = $",
            'UPDATE credentials SET "name"',
            "IS NOT DISTINCT FROM",
            "DELETE FROM credentials"
          ]
          for (const needle of [...alone, ...shared]) {
            assert.isTrue(
              texts.some((text) => text.includes(needle)),
              needle
            )
          }
          /** The plan for values not known yet. */
          const planOf = (text: string) =>
            Effect.gen(function* () {
              const count = Math.max(...Array.from(text.matchAll(/\$(\d+)/g), ([, n]) => Number(n)), 0)
              const values = count === 0 ? "" : `(${Array<string>(count).fill("NULL").join()})`
              yield* sql.unsafe("SET LOCAL plan_cache_mode = force_generic_plan")
              yield* sql.unsafe(`PREPARE asked AS ${text}`)
              const rows = yield* sql.unsafe<{ "QUERY PLAN": string }>(`EXPLAIN EXECUTE asked${values}`)
              yield* sql.unsafe("DEALLOCATE asked")
              return rows.map((row) => row["QUERY PLAN"]).join("\n")
            }).pipe(sql.withTransaction)
          const tableScan = /Seq Scan on (credentials|api_keys|receipts)/
          for (const text of texts) {
            const plan = yield* planOf(text)
            assert.notMatch(plan, tableScan, text)
            assert.match(plan, /Index|Insert|Tid Scan/, text)
            if (/LATERAL \(\s*SELECT [^()]*FROM credentials/.test(text)) {
              assert.match(
                plan,
                /using credentials_pkey [^\n]*\n\s*Index Cond: \(\(account_id = [^)]*\) AND \(id = /,
                text
              )
            }
          }
          assert.match(yield* planOf("SELECT 1 FROM credentials WHERE label = $1"), tableScan, "control")
        })
    )
  }
)
