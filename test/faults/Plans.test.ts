import { Duration, Effect, Layer, Option, Result } from "effect"
import { randomUUID } from "node:crypto"
import { CredentialId } from "../../src/domain/Identifiers.ts"
import { useFromLease } from "../../src/domain/routing/LastUse.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import { CredentialPools } from "../../src/port/CredentialPools.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { CredentialUse } from "../../src/port/CredentialUse.ts"
import { Parkings } from "../../src/port/Parkings.ts"
import { IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { assert, layerLive } from "../support/it.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { databaseSettings } from "../support/database/freshDatabase.ts"
import { Statements } from "../support/database/Statements.ts"
import { TestService } from "../support/http/TestService.ts"

const seed = `
  INSERT INTO accounts SELECT gen_random_uuid(), 'n', now() FROM generate_series(1, 1000);
  INSERT INTO workspaces SELECT gen_random_uuid(), id, 'n', true, now() FROM accounts
    WHERE id NOT IN (SELECT account_id FROM workspaces);
  INSERT INTO api_keys SELECT sha256(convert_to(account_id::text || n, 'UTF8')), account_id, 'n', 'management', now()
    FROM workspaces, generate_series(1, 100) AS n;
  INSERT INTO pools (account_id, workspace_id, provider, members, next_order)
    SELECT account_id, id, provider, 25, 101 FROM workspaces, unnest(ARRAY['openai', 'azure', 'xai', 'groq']) AS provider
    ON CONFLICT DO NOTHING;
  INSERT INTO credentials SELECT gen_random_uuid(), account_id, id, (ARRAY['openai', 'azure', 'xai', 'groq'])[1 + n % 4], NULL, '***...***', now(),
    false, false, false, false, NULL, NULL, NULL, NULL, NULL, n, (SELECT min(id) FROM keks),
    decode(repeat('00', 60), 'hex'), decode(repeat('00', 90), 'hex') FROM workspaces, generate_series(1, 100) AS n;
  INSERT INTO idempotency_records SELECT account_id, sha256(uuid_send(id)), id, sha256(''), now() FROM credentials;
  INSERT INTO audit_entries (account_id, operation, events) SELECT account_id, id, '[]' FROM credentials;
  INSERT INTO credential_parkings SELECT account_id, id, '', 1, 'rejected', 1, now(), now() FROM credentials;
  INSERT INTO credential_use SELECT account_id, id, now(), now(), NULL, NULL, NULL FROM credentials;
  ANALYZE`

layerLive(Layer.provideMerge(TestService.layer, Statements.layer))(
  "among 100,000 credentials and as many API keys",
  (it) => {
    it.effect(
      "every operation, idempotency records, look-ups, rewraps and pools, alone and batched, never scan a whole table (R13)",
      function* () {
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
        yield* (yield* IdempotencyRecords).deleteOlderThan(Duration.days(1), 500)
        yield* (yield* KekRegistry).rewrapBatch({ primary: "new", after: undefined, size: 10 }, ({ wrapped_dek }) =>
          Effect.succeed(Result.succeed({ kek_id: "new", wrapped_dek }))
        )
        const page = { workspace_id: credential.workspace_id, offset: 10, limit: 10 }
        for (const provider of [undefined, credential.provider]) {
          yield* repository.list(account_id, { ...page, provider })
        }
        const memory = { reserved: 100_000, admit: () => Effect.undefined }
        yield* Effect.forEach(many, () => repository.list(account_id, { ...page, memory }), together)
        const changes = { credential, sealed: undefined, key_version: 1, fields: ["name"] } as const
        for (const revision of [1, 1]) yield* repository.update(account_id, { ...changes, revision })
        yield* repository.update(account_id, { ...changes, sealed, revision: 2 })
        yield* repository.delete(account_id, id)

        const pools = yield* CredentialPools
        const owner = { account_id, workspace_id: credential.workspace_id }
        const versions = () => pools.versions(owner, ["openai", "azure"])
        yield* versions()
        yield* Effect.forEach(many, versions, together)
        const ofDefault = () => pools.versions({ account_id }, ["openai", "azure"])
        yield* ofDefault()
        yield* Effect.forEach(many, ofDefault, together)
        const loaded = Option.getOrThrow(yield* pools.load(owner, "openai"))
        assert.isAtLeast(loaded.rows?.length ?? 0, many.length)
        const keys = many.map((credential_id) => ({ account_id, credential_id }))
        const parking = { model: "", key_version: 1, epoch: 0, cause: "rejected", strikes: 1, remaining: 0 } as const
        yield* (yield* Parkings).store(keys.map((key) => ({ ...key, ...parking })))
        yield* (yield* CredentialUse).store(keys.map((key) => ({ ...key, ...useFromLease(1) })))
        yield* (yield* CredentialUse).find(account_id, [id])

        const texts = Array.from(statements).filter((text) =>
          /\b(credentials|pools|api_keys|idempotency_records|credential_parkings|credential_use|audit_entries)\b/.test(
            text
          )
        )
        const shared = databaseSettings.batching
          ? ["json_to_recordset", "unnest", 'LIMIT wanted."limit"', "hash = decode(wanted.hash, 'hex') AND revoked"]
          : []
        const alone = [
          "INSERT INTO pools",
          "INSERT INTO idempotency_records",
          "FOR NO KEY UPDATE OF pools, target",
          "FROM audit_entries WHERE",
          "key_hash = $2",
          "DELETE FROM idempotency_records",
          "(account_id, id) >",
          "UPDATE credentials AS target SET kek_id",
          "hash = decode($1, 'hex')",
          "AS counted",
          "AND provider = $",
          'UPDATE credentials SET "label"',
          "DELETE FROM credentials",
          ") AS states",
          "AS parkings",
          "FOR KEY SHARE OF credentials",
          "UPDATE pools SET health",
          "INSERT INTO credential_parkings",
          "DELETE FROM credential_parkings",
          "INSERT INTO credential_use",
          "FROM credential_use"
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
        const tableScan =
          /Seq Scan on (credentials|pools|api_keys|idempotency_records|credential_parkings|credential_use|audit_entries)\b/
        for (const text of texts) {
          const plan = yield* planOf(text)
          assert.notMatch(plan, tableScan, text)
          assert.match(plan, /Index|Insert|Tid Scan/, text)
          if (!text.includes("concat_ws") && /LATERAL \(\s*SELECT [^()]*FROM credentials/.test(text)) {
            assert.match(
              plan,
              /using credentials_pkey [^\n]*\n\s*Index Cond: \(\(account_id = [^)]*\) AND \(id = /,
              text
            )
          }
        }
        for (const table of ["credentials", "pools", "credential_parkings", "credential_use"]) {
          assert.match(yield* planOf(`SELECT 1 FROM ${table} WHERE ${table}::text = $1`), tableScan, "control")
        }
        /** Every routed request needs these statements: they must read only rows of their pools, by key. */
        for (const text of texts.filter((text) => text.includes("concat_ws"))) {
          const plan = yield* planOf(text)
          assert.notMatch(plan, /Seq Scan|Bitmap/, text)
          assert.match(
            plan,
            /using pools_pkey [^\n]*\n\s*Index Cond: \(\(account_id = [^)]*\) AND \(workspace_id = [^)]*\) AND \(provider = /,
            text
          )
          if (!text.includes("credential_parkings")) continue
          for (const cond of [
            /using credentials_order [^\n]*\n\s*Index Cond: \(\(account_id = [^)]*\) AND \(workspace_id = [^)]*\) AND \(provider = /,
            /using credential_parkings_pkey [^\n]*\n\s*Index Cond: \(\(account_id = [^)]*\) AND \(credential_id = /
          ]) {
            assert.match(plan, cond, text)
          }
        }
      }
    )
  }
)
