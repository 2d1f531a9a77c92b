import { readFileSync } from "node:fs"
import { join } from "node:path"
import { parentPort, workerData } from "node:worker_threads"
import { Effect } from "effect"
import { createPrivateFile } from "../../../src/runtime/SecretFile.ts"

/** The input of one of two threads that create the same files at the same moment. */
export interface Race {
  readonly directory: string
  readonly text: string
  /** The number of threads that have arrived at each file. */
  readonly arrived: Int32Array<SharedArrayBuffer>
}

/** The text that a thread read from a file, and the result of creating the file. */
export interface Found {
  readonly told: string
  readonly text: string
}

const { arrived, directory, text } = workerData as Race
const found = Array.from(arrived, (_, round): Found => {
  const file = join(directory, `keyring-${round}`)
  const isLast = Atomics.add(arrived, round, 1) === 1
  if (isLast) Atomics.notify(arrived, round)
  else Atomics.wait(arrived, round, 1)
  const told = Effect.runSync(
    Effect.match(createPrivateFile(file, text), { onFailure: ({ message }) => message, onSuccess: () => "" })
  )
  return { told, text: readFileSync(file, "utf8") }
})
parentPort?.postMessage(found)
