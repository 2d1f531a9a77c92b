import { Effect, Exit } from "effect"
import { decodeNewCredential } from "../../src/domain/NewCredential.ts"
import { Provider } from "../../src/domain/Provider.ts"
import { type Bed, makeBed, type Postgres, spread } from "./Bed.ts"
import { type Cell, measureCell } from "./Cell.ts"
import { measurePools } from "./gateway/Gateway.ts"
import { body } from "./Load.ts"
import { type Program, startTarget, type Target } from "./Target.ts"

const takes = (provider: string) =>
  Exit.isSuccess(Effect.runSyncExit(decodeNewCredential({ ...(JSON.parse(body) as object), provider })))

/** What grows: the table, the pools of an account, and the pool of a routed request. Costs should not grow with them. */
export const measureGrowth = async (
  postgres: Postgres,
  service: Program,
  beds: ReadonlyArray<Bed>,
  { rounds, seconds }: { readonly rounds: number; readonly seconds: number }
): Promise<ReadonlyArray<Cell>> => {
  const startAs = (bed: Bed, name: string) => startTarget({ ...service, name }, bed)
  const measure = async (targets: ReadonlyArray<Target>, operations: ReadonlyArray<"get" | "create" | "list">) => {
    const cells: Array<Cell> = []
    for (const operation of operations) {
      cells.push(await measureCell(targets, undefined, { operation, connections: 64, rounds, seconds }))
    }
    for (const target of targets) await target.stop()
    return cells
  }
  const byTable: Array<Target> = []
  for (const bed of beds) byTable.push(await startAs(bed, `${bed.seeded} credentials`))
  const cells = await measure(byTable, ["get", "create", "list"])

  const one = { ...(await makeBed(postgres, "one_pool", 1, false)), providers: ["openai"] }
  const providers = Provider.literals.filter(takes).slice(0, 20)
  const many = await spread(await makeBed(postgres, "many_pools", 50_000, false), providers)
  const targets = [
    await startAs(one, "into one empty pool"),
    await startAs(many, "over 20 pools of an account with 50000 credentials")
  ]
  cells.push(...(await measure(targets, ["create"])))
  for (const bed of [one, many]) await bed.client.end()

  cells.push(await measurePools(postgres, service, [3, 100, 1_000], { rounds, seconds }))
  return cells
}
