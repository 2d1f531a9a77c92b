import { columns } from "./peers/statements.ts"
import { account_id, type Bed, workspace_id } from "./Bed.ts"
import { isInstalled, type Load, runScript, type Seen } from "./Load.ts"

export const hasPgbench = isInstalled("pgbench")

const authenticate = (key: string) =>
  `SELECT account_id, role FROM api_keys WHERE hash = sha256('${key}') AND revoked_at IS NULL;`

const get = ({ key, seeded }: Load) => `
\\set n random(1, ${seeded})
${authenticate(key)}
SELECT ${columns.join(", ")}, sort_order FROM credentials
WHERE id = ('00000000-0000-7000-9000-' || lpad(:n::text, 12, '0'))::uuid AND account_id = '${account_id}';
`

const create = ({ key }: Load) => `
${authenticate(key)}
SELECT id FROM workspaces WHERE account_id = '${account_id}' AND deleted_at IS NULL AND is_default;
INSERT INTO credentials SELECT gen_random_uuid(), account_id, workspace_id, provider, name, label, now(), disabled,
  is_fallback, is_required, is_byok_only, allowed_api_key_hashes, allowed_models, allowed_user_ids, declared_region,
  declared_zdr, (SELECT coalesce(max(sort_order) + 1, 0) FROM credentials
    WHERE account_id = '${account_id}' AND workspace_id = '${workspace_id}' AND provider = 'anthropic'), 'kek-pgbench', wrapped_dek, sealed
FROM credentials WHERE account_id = '${account_id}' AND id = '00000000-0000-7000-9000-000000000001' RETURNING sort_order;
`

/** Runs the service's statements as fast as PostgreSQL answers them, over at most ten connections. */
export const putDirectly = async ({ database, password, socket }: Bed, load: Load): Promise<Seen> => {
  const clients = String(Math.min(10, load.connections))
  const argumentsFor = (script: string) => [
    ...["-n", "-M", "prepared", "-c", clients, "-j", "1", "-T", String(load.seconds), "-f", script],
    ...["-h", socket, "-U", "byok", database]
  ]
  const script = load.operation === "get" ? get(load) : create(load)
  const stdout = await runScript("pgbench", script, argumentsFor, { PGPASSWORD: password })
  const number = (pattern: RegExp) => Number(pattern.exec(stdout)?.[1] ?? Number.NaN)
  const average = number(/latency average = ([\d.]+)/)
  return {
    requests: number(/transactions actually processed: (\d+)/),
    seconds: load.seconds,
    p50: average,
    p99: Number.NaN,
    errors: number(/number of failed transactions: (\d+)/)
  }
}
