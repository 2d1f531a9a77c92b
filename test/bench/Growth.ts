import { addOthers, type Bed, makeBed, type Postgres, spread } from "./Bed.ts"
import { type Cell, measureCell } from "./Cell.ts"
import { measureRoutes } from "./gateway/Gateway.ts"
import { type Program, startTarget, type Target } from "./Target.ts"

/** Numbers of credentials in the table, a thousand per account. */
const tables = [1_000, 100_000, 1_000_000]

/** Measures costs while the table, the pools of an account and the pool of a routed request grow. They should stay equal. */
export const measureGrowth = async (
  postgres: Postgres,
  service: Program,
  bed: Bed,
  { rounds, seconds }: { readonly rounds: number; readonly seconds: number }
): Promise<ReadonlyArray<Cell>> => {
  const cells: Array<Cell> = []
  /** Measures beds, each under the name of the part that has grown. */
  const measure = async (beds: Readonly<Record<string, Bed>>, operations: ReadonlyArray<"get" | "create" | "list">) => {
    const targets: Array<Target> = []
    for (const [name, bed] of Object.entries(beds)) targets.push(await startTarget({ ...service, name }, bed))
    for (const operation of operations) {
      cells.push(await measureCell(targets, undefined, { operation, connections: 64, rounds, seconds }))
    }
    for (const target of targets) await target.stop()
  }
  const measureRouted = async (pools: Parameters<typeof measureRoutes>[2]) => {
    cells.push(await measureRoutes(postgres, service, pools, { rounds, seconds }))
  }

  const byTable: Record<string, Bed> = {}
  for (const size of tables) {
    const began = performance.now()
    const larger = await makeBed(postgres, `table_${size}`, bed.seeded, false)
    await addOthers(larger, size)
    byTable[`${size} credentials`] = larger
    console.error(`stored ${size} credentials in ${((performance.now() - began) / 1000).toFixed(0)} s`)
  }
  await measure(byTable, ["get", "create", "list"])
  await measureRouted(Object.entries(byTable).map(([name, bed]) => ({ name, bed, keysEach: 3 })))

  const empty = await makeBed(postgres, "empty_pools", 1, false)
  const half = await spread(await makeBed(postgres, "half_full_pools", 10_000, false))
  await measure({ "into empty pools": empty, "into pools of 500": half }, ["create"])
  await measure({ [`in a workspace of ${bed.seeded}`]: bed, "in a workspace of 10000": half }, ["list"])

  await measureRouted([3, 100, 1_000].map((keysEach) => ({ name: `${keysEach} keys a pool`, bed: empty, keysEach })))
  for (const made of [...Object.values(byTable), empty, half]) await made.client.end()
  return cells
}
