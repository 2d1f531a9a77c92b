import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { cpSync, mkdirSync, symlinkSync } from "node:fs"
import { createServer } from "node:http"
import { join } from "node:path"
import { runNode } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const repository = join(import.meta.dirname, "../..")

/** The address of a server that answers everything. */
const answering = Effect.map(
  Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer((_, response) => response.end("{}")).listen(0, "127.0.0.1", () =>
        resume(Effect.succeed(server))
      )
    }),
    (server) =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  ),
  (server) => {
    const address = server.address()
    assert(typeof address === "object" && address !== null)
    return `http://127.0.0.1:${address.port}`
  }
)

it.live("without wrk the benchmark finds its own load generator, even in a folder with spaces in its name", () =>
  Effect.gen(function* () {
    const folder = join(yield* temporaryDirectory, "a folder, 100% ours")
    mkdirSync(folder)
    for (const name of ["test", "src", "package.json"]) {
      cpSync(join(repository, name), join(folder, name), { recursive: true })
    }
    symlinkSync(join(repository, "node_modules"), join(folder, "node_modules"))
    const load = {
      operation: "create",
      url: yield* answering,
      key: "k",
      connections: 1,
      seconds: 1,
      seeded: 1,
      ids: []
    }
    const script = `
      import { put } from "./test/bench/Load.ts"
      console.log(JSON.stringify(await put(${JSON.stringify(load)})))`
    const { stderr, stdout } = yield* runNode(["--input-type=module", "-e", script], {
      cwd: folder,
      variables: { PATH: "" }
    })
    assert.include(stdout, '"errors":0', stderr)
    assert.notInclude(stdout, '"requests":0')
  })
)
