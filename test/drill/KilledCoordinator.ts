import { Effect } from "effect"
import { checked, newBed } from "./Bed.ts"
import { distribute, newCitusCluster } from "./CitusCluster.ts"
import { showAnswers } from "./deadline.ts"
import type { Findings, Row } from "./Row.ts"
import { underLoad } from "./underLoad.ts"

/** Maximum times the coordinator is killed, until it has left enough transactions between the two phases of a commit. */
const kills = 30
const wanted = 10

/** How many credentials, there or deleted, differ from those that were created according to the audit log. */
const unpaired = `
  WITH events AS (
    SELECT event ->> 'action' AS action, (event ->> 'credential_id')::uuid AS id
    FROM audit_entries, json_array_elements(events) AS event
  ), created AS (
    SELECT id FROM events WHERE action = 'credential.create'
  ), known AS (
    SELECT id FROM credentials UNION ALL SELECT id FROM events WHERE action = 'credential.delete'
  )
  SELECT (SELECT count(*) FROM (SELECT id FROM created EXCEPT ALL SELECT id FROM known) AS missing)
    + (SELECT count(*) FROM (SELECT id FROM known EXCEPT ALL SELECT id FROM created) AS unrecorded) AS count`

const killed = Effect.fnUntraced(function* (findings: Findings) {
  const cluster = yield* newCitusCluster({ "citus.recover_2pc_interval": "-1" })
  yield* distribute(cluster)
  const { coordinator, recover, restart, workers } = cluster
  const bed = yield* newBed(coordinator)
  const between = Effect.map(
    Effect.forEach(workers, ({ query }) => query("SELECT count(*)::int FROM pg_prepared_xacts")),
    (each) => each.reduce((sum, [row]) => sum + Number(row?.["count"]), 0)
  )
  let done = 0
  let left = 0
  yield* underLoad({ findings, bed }, function* ({ acked }) {
    for (; done < kills && left < wanted; done += 1) {
      yield* coordinator.kill
      left += yield* between
      yield* restart(coordinator)
      yield* recover
      yield* acked
    }
  })
  yield* recover
  const countUnpaired = Effect.map(coordinator.query(unpaired), ([row]) => Number(row?.["count"]))
  findings.show(`killed ${done} times, which left ${left} transactions between the two phases`)
  findings.expect(left > 0, "no kill came between the two phases")
  findings.expect((yield* countUnpaired) === 0, "credentials and their events in the audit log differ")
  showAnswers(findings)
  findings.judge(yield* checked(bed, findings.ledger))
  yield* coordinator.query(`
      DELETE FROM audit_entries
      WHERE seq = (SELECT max(seq) FROM audit_entries WHERE events::text LIKE '%credential.create%')`)
  findings.expect((yield* countUnpaired) === 1, "a missing event is not noticed")
})

export const rows: ReadonlyArray<Row> = [
  { id: "R18", fault: "Citus: the coordinator killed between the two phases of a commit", run: killed }
]
