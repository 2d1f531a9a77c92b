import { Effect } from "effect"
import { createOver, idIn } from "../support/http/callByok.ts"
import { leanColumns } from "./Bed.ts"
import { type Cell, measureCell } from "./Cell.ts"
import { body } from "./Load.ts"
import type { Target } from "./Target.ts"

/** How many credentials are updated in turn. */
const updated = 200

const create = ({ bed: { key, providers }, url }: Target) =>
  Effect.runPromise(Effect.map(createOver(url, key, { ...(JSON.parse(body) as object), provider: providers[0] }), idIn))

/** Creates the credentials to update with the service, and copies them into the table of the lean peer. */
const fill = async (target: Target) => {
  const { client, updatable } = target.bed
  while (updatable.length < updated) updatable.push(await create(target))
  await client.query(
    `INSERT INTO lean_credentials SELECT ${leanColumns} FROM credentials WHERE id = ANY($1) ON CONFLICT DO NOTHING`,
    [updatable]
  )
}

/** Measures list, a page of 50, and update, for which the service seals the key again. The first target is the service. */
export const measureLife = async (
  targets: ReadonlyArray<Target>,
  connections: ReadonlyArray<number>,
  rounds: number,
  seconds: number
) => {
  const [service] = targets
  if (service !== undefined) await fill(service)
  const cells: Array<Cell> = []
  for (const operation of ["list", "update"] as const) {
    // Lets V8 compile the code that only this operation runs.
    await measureCell(targets, undefined, { operation, connections: 64, rounds: 1, seconds: 10 })
    for (const count of connections.filter((count) => count === 1 || count === 64)) {
      cells.push(await measureCell(targets, undefined, { operation, connections: count, rounds, seconds }))
    }
  }
  return cells
}
