import { makeBed, startPostgres } from "../Bed.ts"
import { medianOf } from "../Report.ts"
import { measureLadder } from "./Ladder.ts"

const postgres = await startPostgres()
const bed = await makeBed(postgres, "ladder", 1000)
const ladder = await measureLadder(bed, 3, 2)
console.table(Object.entries(ladder).map(([rung, rounds]) => ({ rung, "CPU µs": Number(medianOf(rounds).toFixed(1)) })))
await bed.client.end()
await postgres.stop()
process.exit()
