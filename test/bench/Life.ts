import { Effect } from "effect"
import { createOver, idIn } from "../support/http/callByok.ts"
import { type Bed, leanColumns } from "./Bed.ts"
import { type Cell, measureCell } from "./Cell.ts"
import { body } from "./Load.ts"
import type { Target } from "./Target.ts"

/** How many credentials are updated in turn. */
const updated = 200

const create = ({ bed: { key }, url }: Target) =>
  Effect.runPromise(Effect.map(createOver(url, key, JSON.parse(body) as object), idIn))

/** Creates with the service what is updated, and copies it into the table of the lean peer. */
const fill = async ({ client, updatable }: Bed, target: Target) => {
  while (updatable.length < updated) updatable.push(await create(target))
  await client.query(
    `INSERT INTO lean_credentials SELECT ${leanColumns} FROM credentials WHERE id = ANY($1) ON CONFLICT DO NOTHING`,
    [updatable]
  )
}

/** Measures list, a page of 50, and update, for which the service seals the key again, beside the lean peer. */
export const measureLife = async (
  service: Target,
  lean: Target,
  connections: ReadonlyArray<number>,
  rounds: number,
  seconds: number
) => {
  await fill(service.bed, service)
  const cells: Array<Cell> = []
  for (const operation of ["list", "update"] as const) {
    for (const count of connections) {
      cells.push(await measureCell([service, lean], undefined, { operation, connections: count, rounds, seconds }))
    }
  }
  return cells
}
