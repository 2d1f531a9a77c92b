import { Effect, Layer } from "effect"
import { Statements } from "../support/database/Statements.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { isDefinition, onAllAccounts, usePorts } from "../sql/usePorts.ts"

const tables = /\b(credentials|pools|api_keys|idempotency_records|credential_parkings|credential_use|audit_entries)\b/

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
      "no statement of requests, commands and background work scans a whole table, alone or batched (R13)",
      function* () {
        const { sql } = yield* TestService
        const statements = yield* Statements
        yield* TestService.newTenant
        for (const statement of seed.split(";")) yield* sql.unsafe(statement)
        statements.clear()
        yield* usePorts
        const isExempt = (text: string) =>
          isDefinition(text) || text.includes("pg_locks") || onAllAccounts.some((pattern) => pattern.test(text))
        const texts = Array.from(statements).filter((text) => tables.test(text) && !isExempt(text))
        assert.isAtLeast(texts.length, 45)
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
        const tableScan = new RegExp(`Seq Scan on ${tables.source.slice(2)}`)
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
