import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect, Fiber } from "effect"
import { createOne } from "../support/database/AckChecker.ts"
import { adminClient } from "../support/database/freshDatabase.ts"
import { lockTable } from "../support/database/transactions.ts"
import { getOver } from "../support/http/callByok.ts"
import { eventually } from "../support/process/eventually.ts"
import type { Cluster } from "./Cluster.ts"
import type { Findings, Row } from "./Row.ts"
import { judge, newClusterBed, underLoad } from "./underLoad.ts"

/** PostgreSQL writes the plan of every statement that it has executed, also those of its own triggers, to its log. */
const settings = {
  logging_collector: "on",
  log_directory: "log",
  session_preload_libraries: "auto_explain",
  "auto_explain.log_min_duration": "0",
  "auto_explain.log_nested_statements": "on"
}

const accounts = 10_000
const each = 100

const seed = [
  `INSERT INTO accounts SELECT gen_random_uuid(), 'n', now() FROM generate_series(1, ${accounts})`,
  `INSERT INTO workspaces SELECT gen_random_uuid(), id, 'n', true, now() FROM accounts
     WHERE id NOT IN (SELECT account_id FROM workspaces)`,
  `INSERT INTO api_keys SELECT sha256(convert_to(account_id::text || n, 'UTF8')), account_id, 'n', 'management', now()
     FROM workspaces, generate_series(1, 10) AS n`,
  `INSERT INTO pools (account_id, workspace_id, provider, members, next_order)
     SELECT account_id, id, 'openai', ${each}, ${each + 1} FROM workspaces ON CONFLICT DO NOTHING`,
  `INSERT INTO credentials SELECT gen_random_uuid(), account_id, id, 'openai', 'seeded', '***...***', now(),
     false, false, false, false, NULL, NULL, NULL, NULL, NULL, n, 'seeded',
     decode(repeat('00', 60), 'hex'), decode(repeat('00', 90), 'hex') FROM workspaces, generate_series(1, ${each}) AS n`,
  "VACUUM ANALYZE"
]

/** The plans in the log. Tables of keys and migrations have a few rows for ever, and are best read from end to end. */
const plansOf = ({ data }: Cluster) =>
  readdirSync(join(data, "log"))
    .map((name) => readFileSync(join(data, "log", name), "utf8"))
    .join("\n")
    .split(/^(?=\S.*duration: )/m)
    .filter((entry) => entry.includes("plan:"))

const readsAll = /Seq Scan on (accounts|workspaces|api_keys|pools|credentials)\b/

/** What the statements of create and get contain, alone and together with others. */
const alone: ReadonlyArray<readonly [name: string, text: RegExp]> = [
  ["key of one request", /FROM api_keys WHERE hash = decode\(\$1/],
  ["credential of one get", /FROM credentials WHERE account_id = \$1 AND id = \$2/],
  ["insert of one credential", /INSERT INTO credentials VALUES \(new\.\*\)/],
  ["foreign key of an insert", /FROM ONLY "public"\."pools"/]
]
const together: typeof alone = [
  ["keys of several requests", /FROM api_keys WHERE hash = decode\(wanted\.hash/],
  ["credentials of several gets", /FROM credentials WHERE account_id = wanted\.account_id AND id = wanted\.id/]
]

const seenIn =
  (plans: ReadonlyArray<string>) =>
  ([, text]: (typeof alone)[number]) =>
    plans.some((plan) => text.test(plan))

/** Delays the look-ups of API keys until several wait, so that the requests go on together. */
const gathered = Effect.fnUntraced(function* ({ query, url }: Cluster, requests: Effect.Effect<unknown>) {
  const held = Effect.gen(function* () {
    yield* Effect.asVoid(lockTable(yield* adminClient(url), "api_keys"))
    const sent = yield* Effect.forkDetach(requests)
    const waiting = query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    yield* eventually("look-ups of API keys wait", waiting, ({ length }) => length > 1)
    return sent
  })
  yield* Fiber.join(yield* Effect.scoped(held))
})

const atOnce = { concurrency: "unbounded" } as const

const run = Effect.fnUntraced(function* (findings: Findings) {
  const { ledger } = findings
  const { bed, cluster } = yield* newClusterBed({}, { synchronous_commit: "off", max_wal_size: "4GB" })
  for (const statement of seed) yield* cluster.query(statement)
  yield* cluster.stop()
  yield* cluster.start(settings)
  yield* underLoad({ findings, bed }, function* ({ service: { url } }) {
    const ids = ledger.acked.slice(-50).map(({ id }) => id)
    yield* Effect.forEach(ids.slice(-5), (id) => getOver(url, bed.key, id))
    const creates = Effect.forEach(ids, () => Effect.promise(() => createOne(url, bed.key, ledger)), atOnce)
    const gets = Effect.forEach(ids, (id) => getOver(url, bed.key, id), atOnce)
    for (let round = 0; round < 20 && !together.every(seenIn(plansOf(cluster))); round += 1) {
      yield* gathered(cluster, Effect.all([creates, gets], atOnce))
    }
  })
  const [rows] = yield* cluster.query("SELECT count(*)::int AS n FROM credentials")
  yield* cluster.query("SELECT id FROM credentials WHERE label = 'control'")
  const isControl = (plan: string) => plan.includes("'control'")
  yield* eventually("the control, which reads the table from end to end, is in the log, and so all before it", () =>
    plansOf(cluster).some((plan) => isControl(plan) && readsAll.test(plan))
  )
  const plans = plansOf(cluster).filter(
    (plan) => !plan.includes("count(*)::int AS n FROM credentials") && !isControl(plan)
  )
  const unseen = [...alone, ...together].filter((statement) => !seenIn(plans)(statement)).map(([name]) => name)
  findings.expect(unseen.length === 0, `no plan was seen: ${unseen.join(", ")}`)
  const scans = plans.filter((plan) => readsAll.test(plan))
  findings.show(
    `${String(rows?.["n"])} credentials, ${plans.length} plans, ${scans.length} read a table from end to end`
  )
  findings.wrong.push(...scans.slice(0, 3))
  yield* cluster.query("DELETE FROM credentials WHERE kek_id = 'seeded'")
  yield* judge(findings, bed)
})

export const rows: ReadonlyArray<Row> = [
  { id: "R13", fault: "1,000,000 credentials: every plan of create and get that was executed", run }
]
