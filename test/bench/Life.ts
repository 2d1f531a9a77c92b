import type { Bed } from "./Bed.ts"
import { type Cell, measureCell } from "./Cell.ts"
import { body } from "./Load.ts"
import type { Target } from "./Target.ts"

/** How many credentials are updated in turn. */
const updated = 200

const create = async ({ bed: { key }, url }: Target) => {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" }
  const response = await fetch(`${url}/api/v1/byok`, { method: "POST", headers, body })
  const { data } = (await response.json()) as { readonly data: { readonly id: string } }
  return data.id
}

const fill = async ({ updatable }: Bed, target: Target) => {
  while (updatable.length < updated) updatable.push(await create(target))
}

/** Measures list, a page of 50, and update, which seals the policy again, of the service alone: no peer has them. */
export const measureLife = async (
  target: Target,
  connections: ReadonlyArray<number>,
  rounds: number,
  seconds: number
) => {
  await fill(target.bed, target)
  const cells: Array<Cell> = []
  for (const operation of ["list", "update"] as const) {
    for (const count of connections) {
      cells.push(await measureCell([target], undefined, { operation, connections: count, rounds, seconds }))
    }
  }
  return cells
}
