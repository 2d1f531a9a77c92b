import { cpSync, mkdirSync, symlinkSync } from "node:fs"
import { createServer } from "node:http"
import { join } from "node:path"
import { listening } from "../support/database/listen.ts"
import { runNode } from "../support/process/runNode.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, it } from "../support/it.ts"

const repository = join(import.meta.dirname, "../..")

it.live(
  "the benchmark uses its own load generator without wrk, even in a folder with spaces in its name",
  function* () {
    const folder = join(yield* temporaryDirectory, "a folder, 100% ours")
    mkdirSync(folder)
    for (const name of ["test", "src", "package.json"]) {
      cpSync(join(repository, name), join(folder, name), { recursive: true })
    }
    symlinkSync(join(repository, "node_modules"), join(folder, "node_modules"))
    const port = yield* listening(createServer((_, response) => response.end("{}")))
    const load = {
      operation: "create",
      url: `http://127.0.0.1:${port}`,
      key: "k",
      connections: 1,
      seconds: 1,
      seeded: 1,
      ids: [],
      providers: ["anthropic"]
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
  }
)
