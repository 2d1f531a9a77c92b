import { randomBytes } from "node:crypto"
import { formatApiKey } from "../../../src/runtime/ApiKey.ts"
import type { Bed } from "../Bed.ts"
import { loadOn, put } from "../Load.ts"
import { cpuOfTree } from "../Process.ts"
import { startTarget } from "../Target.ts"

/** The layers of a get over HTTP, each rung with one more: CPU of Node per request at 64 connections, in microseconds. */
const rungs = [
  { name: "node:http alone, the same answer", rung: "node", known: true },
  { name: "Effect's server and router, a constant answer", rung: "router", known: true },
  { name: "the whole HTTP side, stubs behind it", rung: "http", known: true },
  { name: "the same, an unknown token (401)", rung: "http", known: false }
]

/** Measures every rung in turn, round by round, and answers with the rounds of each. */
export const measureLadder = async (bed: Bed, rounds: number, seconds: number) => {
  const results: Record<string, Array<number>> = {}
  for (const { known, name, rung } of rungs) {
    const program = { name, arguments: ["test/bench/ladder/rung.ts", rung, bed.key] }
    const target = await startTarget(program, bed)
    const key = known ? bed.key : formatApiKey(randomBytes(32), "management")
    for (let round = -2; round < rounds; round += 1) {
      const before = cpuOfTree(target.pid)
      const load = loadOn(bed, target.url, { operation: "get", connections: 64, seconds })
      const { requests } = await put({ ...load, key })
      if (round >= 0) (results[name] ??= []).push((cpuOfTree(target.pid) - before) / requests)
    }
    await target.stop()
  }
  return results
}
