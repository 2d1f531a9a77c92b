import { readdirSync } from "node:fs"
import { join } from "node:path"
import { runNode } from "./support/process/runNode.ts"
import { rows } from "./drill/rows.ts"
import { temporaryDirectory } from "./support/process/temporaryDirectory.ts"
import { assert, it } from "./support/it.ts"

const repository = join(import.meta.dirname, "..")

it.live.each(["R98,R99", "control", ""])("the fault drill refuses --only=%s and lists its rows", function* (only) {
  const cwd = yield* temporaryDirectory
  const { code, stderr, stdout } = yield* runNode([join(repository, "test/drill/main.ts"), `--only=${only}`], { cwd })
  assert.deepStrictEqual({ code, stdout }, { code: 2, stdout: "" })
  assert.match(stderr, /^--only takes some of R1,R2,R3(,R\d+)+\n$/)
  assert.deepStrictEqual(readdirSync(cwd), [])
})

it("every row of the fault drill has a unique name", () => {
  const names = rows.map(({ fault }) => fault)
  assert.deepStrictEqual(Array.from(new Set(names)), names)
})

it.live("the mutation test runner refuses an unknown path with exit code 2 and lists known paths", function* () {
  const args = [join(repository, "test/mutation/main.ts"), "src/nonsense"]
  assert.deepStrictEqual(yield* runNode(args, { cwd: repository }), {
    code: 2,
    stdout: "",
    stderr:
      "Known are paths that begin with src/domain, src/domain/routing, src/runtime, src/crypto, src/crypto/keyring, src/port, src/service/links, src/service/keyring, src/service/credentials, src/service/audit, src/service/accounts, src/service/routing, src/service/tokens, src/sql/routing, src/sql/credentials, src/sql/connection, src/gateway, src/http, src/wiring\n"
  })
})
