import { setImmediate } from "node:timers/promises"
import { setFlagsFromString } from "node:v8"

/*
 * Shows why `byok serve` turns allocation-site pretenuring off: once V8 has seen objects of a site survive, it allocates further
 * ones in the old space, where they keep everything that they refer to until the next old collection.
 */
if (process.argv.includes("--off")) setFlagsFromString("--no-allocation-site-pretenuring")

const open = (n: number) => ({ n, held: [new Array<number>(50).fill(n), { n }] })

const run = async (turns: number, kept: Array<unknown>, most: number) => {
  for (let turn = 0; turn < turns; turn += 1) {
    kept.push(Array.from({ length: 64 }, (_, n) => open(n)))
    if (kept.length > most) kept.shift()
    if (turn % 1000 === 0) await setImmediate()
  }
}

await run(4_000, [], 4_000)
const before = process.cpuUsage()
await run(60_000, [], 1)
const { system, user } = process.cpuUsage(before)
const memory = Math.round(process.resourceUsage().maxRSS / 1024)
console.log(`${((user + system) / (60_000 * 64)).toFixed(2)} µs of CPU a request, ${memory} MiB at most`)
