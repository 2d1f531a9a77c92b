import { assert, describe, it } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import { distribute, logOf, newCitusCluster, postgresWithCitus } from "../drill/CitusCluster.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { usePorts } from "./usePorts.ts"

const why = Effect.runSync(Effect.match(postgresWithCitus, { onSuccess: () => undefined, onFailure: ({ why }) => why }))

/** The coordinator logs the plan of each statement as it was run. */
const explaining = {
  shared_preload_libraries: "citus,auto_explain",
  "auto_explain.log_min_duration": "0",
  "auto_explain.log_format": "json",
  logging_collector: "on",
  log_destination: "jsonlog",
  log_filename: "server.log"
}

/** A statement on distributed tables as it was run: how many shards each of its parts asks. */
interface Run {
  readonly text: string
  readonly tasks: ReadonlyArray<number>
  /** Whether its rows pass through the coordinator, and from there to every node. */
  readonly pulled: boolean
}

const runsIn = (log: string): ReadonlyArray<Run> =>
  log.split("\n").flatMap((line) => {
    const { message = "" } = line === "" ? {} : (JSON.parse(line) as { readonly message?: string })
    const [, plan] = /^duration: \S+ ms {2}plan:\n(.*)$/s.exec(message) ?? []
    if (plan === undefined) return []
    const { "Query Text": text = "" } = JSON.parse(plan) as { readonly "Query Text"?: string }
    const tasks = Array.from(plan.matchAll(/"Task Count": (\d+)/g), ([, count]) => Number(count))
    return tasks.length === 0 ? [] : [{ text, tasks, pulled: plan.includes("INSERT/SELECT method") }]
  })

/** No request runs these: they are about many accounts, or a command of an operator. */
const ofNoRequest: Readonly<Record<string, RegExp>> = {
  "the keys that credentials name": /SELECT min\(kek_id\)/,
  "credentials that name a key": /FROM credentials\s+WHERE kek_id (BETWEEN \$|= (ANY\()?\$)/,
  "a rewrap": /\(account_id, id\) > \(.* kek_id <> |UPDATE credentials SET kek_id|OFFSET \$3 LIMIT 1$/s,
  "a search for a leaked key":
    /WITH read AS|found \(account_id, credential_id, key_version, n\)|AS count FROM credentials$/,
  "old idempotency records": /DELETE FROM receipts WHERE true/,
  "parkings and uses of many accounts": /(INTO|FROM) credential_(parkings|use) AS \w+\s+(\(|USING)/,
  "a workspace by its id": /workspaces (SET deleted_at = \$1\s+)?WHERE id =/,
  accounts: /FROM accounts\s+(WHERE id > \$1 ORDER|LIMIT)|INSERT INTO api_keys/
}

describe.skipIf(why !== undefined)(
  `tables distributed by Citus${why === undefined ? "" : ` (skipped: ${why})`}`,
  () => {
    it.live("every statement of a request asks one node, and every other one runs", () =>
      Effect.gen(function* () {
        const cluster = yield* newCitusCluster(explaining)
        yield* distribute(cluster)
        const settings = { databaseUrl: Option.some(Redacted.make(cluster.coordinator.url)) }
        const service = TestService.layerWith({ settings: (given) => ({ ...given, ...settings }) })
        yield* Effect.gen(function* () {
          yield* usePorts
          const tenant = yield* TestService.newTenant
          const id = createdId(yield* tenant.create(minimal))
          yield* tenant.plan({ providers: ["openai"] })
          yield* tenant.get(id)
        }).pipe(Effect.provide(service))
        yield* cluster.coordinator.query("SELECT label FROM credentials WHERE kek_id = 'planted'")
        const runs = runsIn(logOf(cluster.coordinator))
        const patterns = Object.values(ofNoRequest)
        const astray = runs.filter(
          ({ pulled, tasks, text }) =>
            text !== "" && (pulled || tasks.some((count) => count !== 1)) && !patterns.some((each) => each.test(text))
        )
        assert.deepStrictEqual(
          astray.map(({ text }) => text),
          ["SELECT label FROM credentials WHERE kek_id = 'planted'"]
        )
        for (const [name, pattern] of Object.entries(ofNoRequest)) {
          assert.isTrue(
            runs.some(({ text }) => pattern.test(text)),
            name
          )
        }
      }).pipe(Effect.scoped)
    )
  }
)
