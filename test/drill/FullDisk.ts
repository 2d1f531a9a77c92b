import { closeSync, openSync, rmSync, writeSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { eventually } from "../support/process/eventually.ts"
import { runProgram } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { Skipped } from "../support/process/installedPrograms.ts"
import { ownDirectory } from "./Cluster.ts"
import { pause } from "./deadline.ts"
import type { Findings, Row } from "./Row.ts"
import { judge, newClusterBed, underLoad } from "./underLoad.ts"
import { answersMeanwhile } from "./watch.ts"

/** A separate volume of this many MiB. */
const volume = Effect.fnUntraced(function* (size: number) {
  const directory = yield* temporaryDirectory
  yield* Effect.acquireRelease(
    Effect.gen(function* () {
      if (process.platform !== "linux") return yield* new Skipped({ why: "needs tmpfs" })
      const { code, stderr } = yield* runProgram("mount", ["-t", "tmpfs", "-o", `size=${size}m`, "tmpfs", directory])
      if (code !== 0) return yield* new Skipped({ why: `a volume cannot be mounted here: ${stderr.trim()}` })
    }),
    () => runProgram("umount", [directory])
  )
  return directory
})

/** Writes until there is no room left. */
const fill = (directory: string): string => {
  const file = join(directory, "ballast")
  const descriptor = openSync(file, "w")
  try {
    for (const size of [2 ** 20, 2 ** 12]) {
      const block = Buffer.alloc(size, 1)
      try {
        while (writeSync(descriptor, block) === size);
      } catch (error) {
        if (!(error instanceof Error && "code" in error && error.code === "ENOSPC")) throw error
      }
    }
  } finally {
    closeSync(descriptor)
  }
  return file
}

/** Segments of 1 MiB, so that the write-ahead log needs a new one soon. */
const small = ["--wal-segsize=1"]
const settings = { min_wal_size: "2MB", max_wal_size: "16MB" }

const full = (
  parent: string,
  { bed, cluster }: Effect.Success<ReturnType<typeof newClusterBed>>,
  findings: Findings,
  whileFull: (url: string) => Effect.Effect<void>
) =>
  Effect.gen(function* () {
    yield* underLoad({ findings, bed }, function* ({ acked, service: { url } }) {
      const ballast = fill(parent)
      yield* eventually("creates fail", () => findings.ledger.unknown.length > 0)
      yield* whileFull(url)
      rmSync(ballast)
      findings.show(cluster.hasEnded() ? "PostgreSQL has ended, and is started again" : "PostgreSQL has not ended")
      if (cluster.hasEnded()) yield* cluster.start(settings)
      yield* acked
    })
    yield* judge(findings, bed)
  })

const withoutRoom = Effect.fnUntraced(function* (findings: Findings) {
  const parent = yield* volume(256)
  const server = yield* newClusterBed({ parent, initdb: small }, settings)
  yield* full(parent, server, findings, () => pause(5_000))
})

const withRoomForTheLog = Effect.fnUntraced(function* (findings: Findings) {
  const parent = yield* volume(256)
  const log = join(ownDirectory(join(yield* temporaryDirectory, "log")), "pg_wal")
  const server = yield* newClusterBed({ parent, initdb: [`--waldir=${log}`] })
  yield* full(parent, server, findings, (url) => answersMeanwhile(findings, url, server.bed.key, pause(5_000)))
})

export const rows: ReadonlyArray<Row> = [
  {
    id: "R8",
    fault: "the volume of the data full for 5 s, its write-ahead log on another one",
    run: withRoomForTheLog
  },
  { id: "R8", fault: "the volume of both full for 5 s", run: withoutRoom }
]
